"""Every hook as a typed method: the only module that knows pluggy's manager.

Implementations are called in plugin order, each isolated: a fault, or a return of the
wrong type, ends the plugin it belongs to and no other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import pluggy
from pegboard_contracts import hooks
from pegboard_contracts.backend import Backend
from pegboard_contracts.converters import Converter
from pegboard_contracts.formats import ReasoningFormat, ToolFormat
from pegboard_contracts.plugin import PROJECT, Plugin
from pegboard_contracts.services import Services
from pegboard_contracts.sources import ModelSource
from pegboard_contracts.structured_outputs import StructuredOutput

from pegboard_kernel.faults import suggestion

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.types import ASGIApp

    Middleware = Callable[[ASGIApp], ASGIApp]

T = TypeVar("T")
_PREFIX = PROJECT + "_"
_HOOKS = [name for name in vars(hooks) if name.startswith(_PREFIX)]


@dataclass(frozen=True)
class Contribution(Generic[T]):
    """Carry what one plugin returned from a hook."""

    plugin: str
    value: T


class HookCalls:
    """Register plugins and call their hooks; `fail` hears of faults, inactive ones are skipped.

    Used on the thread that builds the server.
    """

    def __init__(
        self, is_active: Callable[[str], bool], fail: Callable[[str, BaseException], None]
    ) -> None:
        """Start with the specifications and no plugin."""
        self._is_active = is_active
        self._fail = fail
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hooks)
        self._order: dict[str, int] = {}

    def register(self, plugin: Plugin) -> None:
        """Check and register a plugin's hooks.

        Raises `pluggy.PluginValidationError` for a hook that does not exist, an argument
        that it does not have, and a method named like a hook without its mark.
        """
        try:
            _check_hooks(plugin)
            self._manager.register(plugin, name=plugin.name)
            self._manager.check_pending()
        except pluggy.PluginValidationError:
            self.drop(plugin.name)
            raise
        self._order[plugin.name] = len(self._order)

    def drop(self, name: str) -> None:
        """Forget a plugin; unknown ones are ignored."""
        if self._manager.has_plugin(name):
            self._manager.unregister(name=name)

    def backends(self) -> list[Contribution[Backend]]:
        """Call `pegboard_provide_backend`."""
        return self._one_each("pegboard_provide_backend", Backend)

    def model_sources(self) -> list[Contribution[ModelSource]]:
        """Call `pegboard_provide_model_source`."""
        return self._one_each("pegboard_provide_model_source", ModelSource)

    def converters(self) -> list[Contribution[Converter]]:
        """Call `pegboard_provide_converter`."""
        return self._one_each("pegboard_provide_converter", Converter)

    def tool_formats(self) -> list[Contribution[ToolFormat]]:
        """Call `pegboard_provide_tool_format`."""
        return self._one_each("pegboard_provide_tool_format", ToolFormat)

    def reasoning_formats(self) -> list[Contribution[ReasoningFormat]]:
        """Call `pegboard_provide_reasoning_format`."""
        return self._one_each("pegboard_provide_reasoning_format", ReasoningFormat)

    def structured_outputs(self) -> list[Contribution[StructuredOutput]]:
        """Call `pegboard_provide_structured_output`."""
        return self._one_each("pegboard_provide_structured_output", StructuredOutput)

    def services(self, services: Services) -> None:
        """Call `pegboard_provide_services`."""
        self._one_each("pegboard_provide_services", type(None), services=services)

    def middlewares(self, services: Services) -> list[Contribution[Middleware]]:
        """Call `pegboard_provide_middlewares`."""
        hook = "pegboard_provide_middlewares"
        return cast("list[Contribution[Middleware]]", self._many_each(hook, Callable, services))

    def routers(self, services: Services) -> list[Contribution[APIRouter]]:
        """Call `pegboard_provide_routers`."""
        from fastapi import APIRouter as Router  # noqa: PLC0415 - heavy, and only who builds an app

        hook = "pegboard_provide_routers"
        return cast("list[Contribution[APIRouter]]", self._many_each(hook, Router, services))

    def lifespans(
        self, services: Services
    ) -> list[Contribution[AbstractAsyncContextManager[None]]]:
        """Call `pegboard_provide_lifespan`."""
        return self._one_each(
            "pegboard_provide_lifespan", AbstractAsyncContextManager, services=services
        )

    def _one_each(self, hook: str, wanted: type[T], **arguments: Any) -> list[Contribution[T]]:  # noqa: ANN401 - the hook's own
        def check(value: object) -> T:
            if not isinstance(value, wanted):
                raise TypeError(f"{hook} returned {type(value).__name__}, not {wanted.__name__}")
            return value

        return self._each(hook, check, arguments)

    def _many_each(self, hook: str, wanted: Any, services: Services) -> list[Contribution[Any]]:  # noqa: ANN401 - a type or an ABC
        def check(value: object) -> tuple[object, ...]:
            if not isinstance(value, Sequence):
                raise TypeError(f"{hook} returned {type(value).__name__}, not a sequence")
            values = tuple(cast("Sequence[object]", value))
            for item in values:
                if not isinstance(item, wanted):
                    raise TypeError(f"{hook} returned a sequence with a {type(item).__name__}")
            return values

        return [
            Contribution(contribution.plugin, item)
            for contribution in self._each(hook, check, {"services": services})
            for item in contribution.value
        ]

    def _each(
        self, hook: str, check: Callable[[object], T], arguments: dict[str, Any]
    ) -> list[Contribution[T]]:
        caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
        results: list[Contribution[T]] = []
        for implementation in sorted(
            caller.get_hookimpls(), key=lambda found: self._order[found.plugin_name]
        ):
            name = implementation.plugin_name
            if not self._is_active(name):
                continue
            try:
                value = implementation.function(
                    *(arguments[argument] for argument in implementation.argnames)
                )
                if value is not None:
                    results.append(Contribution(name, check(_no_coroutine(hook, value))))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - SystemExit ends a plugin, not the server
                self._fail(name, error)
        return results


def _check_hooks(plugin: Plugin) -> None:
    for name in dir(type(plugin)):
        if not name.startswith(_PREFIX):
            continue
        if name not in _HOOKS:
            message = f"there is no hook '{name}'.{suggestion(name, _HOOKS)}"
            raise pluggy.PluginValidationError(plugin, message)
        mark = getattr(getattr(type(plugin), name), f"{PROJECT}_impl", None)
        if mark is None:
            message = f"'{name}' is named like a hook and lacks its mark, @hookimpl"
            raise pluggy.PluginValidationError(plugin, message)
        if mark["wrapper"] or mark["hookwrapper"]:
            message = f"'{name}' is a hook wrapper; hooks here are called one by one, unwrapped"
            raise pluggy.PluginValidationError(plugin, message)


def _no_coroutine(hook: str, value: object) -> object:
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(f"{hook} is async; hooks are plain functions that nobody awaits")
    return value
