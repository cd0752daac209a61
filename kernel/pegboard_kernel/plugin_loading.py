"""From what is installed to the plugin classes of this server, in order.

stevedore imports, one name at a time; every fault becomes a record and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from typing import cast

from pegboard_contracts.plugin import CONTRACT, Plugin
from pegboard_contracts.server import PluginState
from stevedore import NamedExtensionManager

from pegboard_kernel.faults import StartupError, suggestion
from pegboard_kernel.inventory import Found
from pegboard_kernel.plugin_records import PluginRecords
from pegboard_kernel.profiles import GROUP_PREFIX, KINDS, PROFILES, REQUIRED
from pegboard_kernel.settings import Settings

Classes = dict[str, type[Plugin]]


def select(
    inventory: Mapping[str, Found], records: PluginRecords, settings: Settings
) -> list[Found]:
    """Choose the plugins to load: the profile's, those enabled by name, minus the disabled.

    Raises `StartupError` for an unknown profile or section, and for a disabled name that is
    unknown, because a misspelt one would leave its plugin on.
    """
    _refuse_unknown_sections(inventory, settings)
    profile, disabled, required = settings.profile, settings.disabled, settings.required
    if profile not in PROFILES:
        known = ", ".join(PROFILES)
        raise StartupError(f"profile: there is no '{profile}', only {known}")
    _refuse_unknown_store(inventory, settings.store)
    unknown = [name for name in disabled if name not in inventory and name not in REQUIRED]
    if unknown:
        raise StartupError(
            *(f"disabled: no plugin is named '{n}'.{suggestion(n, inventory)}" for n in unknown)
        )
    wanted = {*settings.enabled, *required, *REQUIRED}
    for name in sorted(wanted.difference(inventory, disabled)):
        hint = suggestion(name, inventory)
        records.add_missing(name, required=name in REQUIRED, hint=hint)
    for name in {*required, *REQUIRED}.difference(disabled):
        records.require(name)
    chosen: list[Found] = []
    for found in inventory.values():
        if found.name in disabled:
            _disable(records, found, "disabled by name", "take it out of 'disabled'")
        elif found.kind == "stores" and found.name != settings.store:
            reason = f"'{settings.store}' is the store"
            _disable(records, found, reason, f"choose it with --store {found.name}")
        elif found.name in wanted or PROFILES[profile].selects(found.kind, found.name):
            chosen.append(found)
        else:
            reason = f"not in the profile '{profile}'"
            _disable(records, found, reason, f"enable it with --enable {found.name}")
    return chosen


def _refuse_unknown_sections(inventory: Mapping[str, Found], settings: Settings) -> None:
    unknown = sorted(settings.plugins.keys() - inventory.keys())
    if unknown:
        raise StartupError(
            *(f"plugins.{n}: no plugin is named '{n}'.{suggestion(n, inventory)}" for n in unknown)
        )


def _refuse_unknown_store(inventory: Mapping[str, Found], store: str) -> None:
    stores = {found.name for found in inventory.values() if found.kind == "stores"}
    if stores and store not in stores:
        known = ", ".join(sorted(stores))
        raise StartupError(f"store: no store is named '{store}', only {known}")


def _disable(records: PluginRecords, found: Found, reason: str, remedy: str) -> None:
    records.set_state(found.name, PluginState.DISABLED, reason, remedy)


def load_classes(selected: Iterable[Found], records: PluginRecords) -> Classes:
    """Import the selected plugins' modules and return the classes that fit this server."""
    classes: Classes = {}
    for found in selected:
        try:
            plugin_class = _load(found)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like end a plugin, not us
            records.fail(found.name, error, _remedy_of_import(found, error))
            continue
        records.describe(found.name, plugin_class)
        _check_contract(found, plugin_class, records)
        _check_modules(found, plugin_class, records)
        if records.is_active(found.name):
            classes[found.name] = plugin_class
    return classes


class _OneEntryPoint(NamedExtensionManager[type[Plugin]]):
    """Load one entry point that we found ourselves.

    stevedore's own list comes from a cache that is stale for minutes after an install.
    """

    def __init__(self, entry_point: EntryPoint) -> None:
        self._entry_point = entry_point
        super().__init__(
            namespace=entry_point.group,
            names=[entry_point.name],
            on_load_failure_callback=_reraise,
            on_missing_entrypoints_callback=None,
        )

    def list_entry_points(self) -> list[EntryPoint]:
        return [self._entry_point]


def _reraise(manager: object, entry_point: object, error: BaseException) -> None:
    del manager, entry_point
    raise error


def _load(found: Found) -> type[Plugin]:
    if found.kind not in KINDS:
        message = (
            f"'{GROUP_PREFIX}{found.kind}' is no kind of plugin.{suggestion(found.kind, KINDS)}"
        )
        raise TypeError(message)
    loaded = cast("object", _OneEntryPoint(found.entry_point).extensions[0].plugin)
    if not (isinstance(loaded, type) and issubclass(loaded, Plugin)):
        raise TypeError(f"'{found.entry_point.value}' is no class derived from Plugin")
    return loaded


def _remedy_of_import(found: Found, error: BaseException) -> str | None:
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    if error.name.partition(".")[0] != found.entry_point.module.partition(".")[0]:
        return f"install the module '{error.name}', which {found.distribution or found.name} needs"
    return None


def _check_contract(found: Found, plugin_class: type[Plugin], records: PluginRecords) -> None:
    major, minor = plugin_class.contract
    if major == CONTRACT[0] and minor <= CONTRACT[1]:
        return
    ours = f"{CONTRACT[0]}.{CONTRACT[1]}"
    reason = f"written for contract {major}.{minor}, this server has {ours}"
    newer = (major, minor) > CONTRACT
    subject = "pegboard" if newer else found.distribution or found.name
    records.set_state(found.name, PluginState.INCOMPATIBLE, reason, f"upgrade {subject}")


def _check_modules(found: Found, plugin_class: type[Plugin], records: PluginRecords) -> None:
    absent = [module for module in plugin_class.modules if find_spec(module) is None]
    if not absent:
        return
    distribution = found.distribution or "the distribution of " + found.name
    requirement = f"{distribution}[{plugin_class.extra}]" if plugin_class.extra else absent[0]
    records.set_state(
        found.name,
        PluginState.MISSING,
        f"needs {' and '.join(absent)}, which is not installed",
        f'pip install "{requirement}"',
    )


def order_classes(classes: Classes, records: PluginRecords) -> Classes:
    """Sort by `requires` and `after`, ties by name; a cycle is a `StartupError` that shows it."""
    sorter = TopologicalSorter(
        {
            name: [other for other in (*cls.requires, *cls.after) if other in classes]
            for name, cls in classes.items()
        }
    )
    try:
        sorter.prepare()
    except CycleError as error:
        path = " -> ".join(cast("list[str]", error.args[1]))
        message = f"plugins wait for each other: {path}; disable one of them"
        raise StartupError(message) from None
    ordered: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        ordered += ready
        sorter.done(*ready)
    for name in ordered:
        block_if_lacking(name, classes[name], records)
    return {name: classes[name] for name in ordered if records.is_active(name)}


def block_if_lacking(name: str, plugin_class: type[Plugin], records: PluginRecords) -> None:
    """Make a plugin `blocked` when one that it requires is not active."""
    for requirement in plugin_class.requires:
        if records.is_active(requirement):
            continue
        record = records.get(requirement)
        state = record.state if record else "not installed"
        reason = f"requires '{requirement}', which is {state}"
        remedy = (record and record.remedy) or f"install the plugin '{requirement}'"
        records.set_state(name, PluginState.BLOCKED, reason, f"for '{requirement}': {remedy}")
        return
