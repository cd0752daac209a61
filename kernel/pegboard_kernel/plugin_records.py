"""The one record of each plugin: how it is, why, and what to do about it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

import msgspec
from pegboard_contracts.plugin import Plugin
from pegboard_contracts.server import PluginRecord, PluginState

from pegboard_kernel.faults import reason_of
from pegboard_kernel.inventory import Found
from pegboard_kernel.profiles import REQUIRED

logger = logging.getLogger(__name__)

_ORDER = (
    PluginState.FAILED,
    PluginState.INCOMPATIBLE,
    PluginState.BLOCKED,
    PluginState.MISSING,
    PluginState.DISABLED,
)


class PluginRecords:
    """Keep the records of one server: the service `PluginDirectory`.

    A plugin counts as active until something is said against it; the first reason stays.
    """

    def __init__(self, inventory: Mapping[str, Found]) -> None:
        """Start with everything that is installed."""
        self._records = {
            name: PluginRecord(
                kind=found.kind,
                name=name,
                state=PluginState.ACTIVE,
                version=found.version,
                distribution=found.distribution,
            )
            for name, found in inventory.items()
        }
        self._errors: dict[str, BaseException] = {}

    def plugins(self) -> list[PluginRecord]:
        """List every record, by kind and name."""
        return sorted(self._records.values(), key=lambda record: (record.kind, record.name))

    def get(self, name: str) -> PluginRecord | None:
        """Return one record, or nothing."""
        return self._records.get(name)

    def error_of(self, name: str) -> BaseException | None:
        """Return the exception that made a plugin `failed`, for a traceback on the terminal."""
        return self._errors.get(name)

    def is_active(self, name: str) -> bool:
        """Tell whether a plugin exists and nothing was said against it."""
        record = self._records.get(name)
        return record is not None and record.state is PluginState.ACTIVE

    def describe(self, name: str, plugin_class: type[Plugin]) -> None:
        """Take over what the class tells about itself."""
        record = self._records[name]
        self._records[name] = msgspec.structs.replace(
            record,
            summary=plugin_class.summary,
            required=record.required or plugin_class.required,
        )

    def require(self, name: str) -> None:
        """Mark a plugin as required, also one that is not installed."""
        if name in self._records:
            self._records[name] = msgspec.structs.replace(self._records[name], required=True)
        else:
            self.add_missing(name, required=True)

    def add_missing(self, name: str, *, required: bool = False, hint: str = "") -> None:
        """Record a plugin that somebody asked for and nobody installed."""
        self._records[name] = PluginRecord(
            kind="",
            name=name,
            state=PluginState.MISSING,
            reason="no installed distribution has a plugin of this name",
            remedy="install it, or take it out of the settings" + (hint and f".{hint}"),
            required=required,
        )

    def set_state(self, name: str, state: PluginState, reason: str, remedy: str) -> None:
        """Say why a plugin is not active."""
        if self.is_active(name):
            self._records[name] = msgspec.structs.replace(
                self._records[name], state=state, reason=reason, remedy=remedy
            )

    def fail(self, name: str, error: BaseException, remedy: str | None = None) -> None:
        """Make a plugin `failed` and keep its exception."""
        self._errors.setdefault(name, error)
        logger.debug("plugin %s failed", name, exc_info=error)
        self.set_state(
            name,
            PluginState.FAILED,
            reason_of(error),
            remedy or f"see its traceback with `pegboard plugins show {name}`",
        )

    def refusals(self) -> list[str]:
        """Return one line for each required plugin that is neither active nor disabled."""
        accepted = (PluginState.ACTIVE, PluginState.DISABLED)
        return [
            _refusal(record)
            for record in self.plugins()
            if record.required and record.state not in accepted
        ]

    def summary(self) -> str:
        """Count the plugins by state in one line, with the reasons that matter."""
        counts = Counter(record.state for record in self._records.values())
        parts = [f"{counts[PluginState.ACTIVE]} plugins active"]
        for state in _ORDER:
            if not counts[state]:
                continue
            told = [f"{r.name}: {r.reason}" for r in self.plugins() if r.state is state]
            details = "" if state is PluginState.DISABLED else f" ({'; '.join(told)})"
            parts.append(f"{counts[state]} {state}{details}")
        return ", ".join(parts)


def _refusal(record: PluginRecord) -> str:
    line = f"required plugin '{record.name}' is {record.state}: {record.reason}; {record.remedy}"
    # Only what is known can be disabled: a name that the operator made up cannot.
    known = record.kind or record.name in REQUIRED
    return f"{line}, or start without it: --disable {record.name}" if known else line
