"""The start of a server, step by step, from settings to an application.

Steps 1 (settings) and 12 (the summary line) frame it: `settings_sources` and `app`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, version
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from pegboard_contracts.backend import DeviceDirectory
from pegboard_contracts.encoding import Embedder, Reranker
from pegboard_contracts.generation import Generator, PromptPreparer
from pegboard_contracts.lifecycle import LifecycleEvents, ModelLifecycle
from pegboard_contracts.models import ModelDirectory
from pegboard_contracts.plugin import Plugin, PluginSettings
from pegboard_contracts.server import PluginDirectory, ServerInfo
from pegboard_contracts.services import Services
from pegboard_contracts.sources import ModelSource
from pegboard_contracts.structured_outputs import OutputInspector
from pydantic import SecretStr, ValidationError

from pegboard_kernel.board import Board
from pegboard_kernel.devices import BoardDevices
from pegboard_kernel.encoding.path import PathEncoder
from pegboard_kernel.faults import StartupError
from pegboard_kernel.generation.generator import PathGenerator
from pegboard_kernel.generation.inspection import PathInspector
from pegboard_kernel.hook_calls import Contribution, HookCalls
from pegboard_kernel.inventory import take_inventory
from pegboard_kernel.models.catalogue_file import CatalogueFile
from pegboard_kernel.models.directory import Directory
from pegboard_kernel.models.events import EventLog
from pegboard_kernel.models.lifecycle import Lifecycle
from pegboard_kernel.plugin_loading import (
    Classes,
    block_if_lacking,
    load_classes,
    order_classes,
    select,
)
from pegboard_kernel.plugin_records import PluginRecords
from pegboard_kernel.preparation.preparing import Preparation
from pegboard_kernel.preparation.recovery import recover
from pegboard_kernel.settings import Settings

T = TypeVar("T")


class Wiring:
    """Hold what the steps made: everything the application is built from."""

    def __init__(self, settings: Settings, records: PluginRecords, classes: Classes) -> None:
        """Begin with the ordered classes; the plugins come next."""
        self.settings = settings
        self.records = records
        self.classes = classes
        self.plugins: dict[str, Plugin] = {}
        self.hooks = HookCalls(records.is_active, self.fail)
        self.services = Services()
        self.board: Board
        self.directory: Directory
        self.lifecycle: Lifecycle
        self.catalogue: CatalogueFile
        self.events = EventLog()

    def fail(self, name: str, error: BaseException) -> None:
        """Take a plugin out, and every plugin that requires it."""
        self.records.fail(name, error)
        self.settle()

    def settle(self) -> None:
        """Block the plugins whose requirements are out, in order, and drop their hooks."""
        for name, plugin_class in self.classes.items():
            block_if_lacking(name, plugin_class, self.records)
            if not self.records.is_active(name):
                self.hooks.drop(name)

    def register_models(self) -> None:
        """Put right what a cut left behind, then register every model; nothing is loaded.

        Raises `SpecError` for a model that cannot be understood.
        """
        recovered = recover(self.settings.data_dir, self.catalogue)
        self.lifecycle.register_specs()
        for one in recovered:
            if not one.complete:
                self.lifecycle.interrupted(one.model, one.message)
            self.events.tell("notice", one.message, level="warning", model=one.model)

    def still_active(self, contributions: Iterable[Contribution[T]]) -> Iterator[Contribution[T]]:
        """Leave out what plugins contributed that are active no more."""
        self.settle()
        return (one for one in contributions if self.records.is_active(one.plugin))


def wire(settings: Settings, entry_points: Iterable[EntryPoint] | None = None) -> Wiring:
    """Take steps 2 to 9: from what is installed to frozen services.

    Raises `StartupError` for what makes every server of these settings impossible.
    """
    inventory = take_inventory(entry_points)  # 2
    records = PluginRecords(inventory)
    selected = select(inventory, records, settings)  # 3
    classes = load_classes(selected, records)  # 4 and 5
    wiring = Wiring(settings, records, order_classes(classes, records))  # 6
    _configure_and_register(wiring)  # 7 and 8
    _provide_services(wiring)  # 9
    return wiring


def _configure_and_register(wiring: Wiring) -> None:
    faults: list[str] = []
    for name, plugin_class in wiring.classes.items():
        block_if_lacking(name, plugin_class, wiring.records)
        if not wiring.records.is_active(name):
            continue
        section = wiring.settings.plugins.get(name, {})
        try:
            settings = plugin_class.Settings.model_validate(section)
        except ValidationError as error:
            faults += section_faults(f"plugins.{name}", error)
            continue
        try:
            plugin = plugin_class()
            plugin.name = name
            plugin.configure(settings)
            wiring.hooks.register(plugin)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit ends a plugin, not the server
            wiring.records.fail(name, error)
            continue
        wiring.plugins[name] = plugin
    if faults:
        raise StartupError(*faults)


def section_faults(section: str, error: ValidationError) -> list[str]:
    """Tell each fault of a section in a line with its dotted path, without the value."""
    told = error.errors(include_url=False, include_input=False, include_context=False)
    return [
        ".".join((section, *map(str, fault["loc"]))).strip(".")
        + f": {fault['msg'].removeprefix('Value error, ')}"
        for fault in told
    ]


def _provide_services(wiring: Wiring) -> None:
    wiring.board = board = _make_board(wiring)
    settings, services = wiring.settings, wiring.services
    path = settings.catalog or settings.data_dir / "models.json"
    wiring.catalogue = catalogue = CatalogueFile(path, default_device=settings.default_device)
    wiring.directory = Directory(settings, wiring.events)
    wiring.lifecycle = Lifecycle(settings, board, wiring.directory, catalogue, Preparation)
    services.add(ModelDirectory, wiring.directory)
    services.add(ModelLifecycle, wiring.lifecycle)
    services.add(LifecycleEvents, wiring.events)
    generator = PathGenerator(wiring.directory, board, settings)
    services.add(Generator, generator)
    services.add(PromptPreparer, generator)
    services.add(OutputInspector, PathInspector(wiring.directory, generator.guarantees))
    services.add(DeviceDirectory, BoardDevices(board))
    encoding = PathEncoder(wiring.directory)
    services.add(Embedder, encoding)
    services.add(Reranker, encoding)
    services.add(PluginDirectory, wiring.records)
    services.add(ServerInfo, _server_info(settings))
    wiring.hooks.services(services)
    services.freeze()
    wiring.settle()


def _make_board(wiring: Wiring) -> Board:
    hooks = wiring.hooks
    backends = hooks.backends()
    sources = _by_scheme(wiring, hooks.model_sources())
    converters = hooks.converters()
    tool_formats = hooks.tool_formats()
    reasoning_formats = hooks.reasoning_formats()
    structured_outputs = hooks.structured_outputs()
    active = wiring.still_active
    return Board(
        backends={one.plugin: one.value for one in active(backends)},
        model_sources={
            scheme: one.value
            for scheme, one in sources.items()
            if wiring.records.is_active(one.plugin)
        },
        converters={one.plugin: one.value for one in active(converters)},
        tool_formats={one.plugin: one.value for one in active(tool_formats)},
        reasoning_formats={one.plugin: one.value for one in active(reasoning_formats)},
        structured_outputs={one.plugin: one.value for one in active(structured_outputs)},
        sections={name: plain_section(plugin.settings) for name, plugin in wiring.plugins.items()},
    )


def _by_scheme(
    wiring: Wiring, contributions: list[Contribution[ModelSource]]
) -> dict[str, Contribution[ModelSource]]:
    sources: dict[str, Contribution[ModelSource]] = {}
    for one in contributions:
        for scheme in one.value.schemes:
            first = sources.setdefault(scheme, one)
            if first is not one:
                fault = LookupError(f"'{first.plugin}' is the source of '{scheme}:' already")
                wiring.fail(one.plugin, fault)
    return sources


def plain_section(settings: PluginSettings) -> dict[str, Any]:
    """Turn a plugin's settings into plain data that another process validates again."""
    values = msgspec.to_builtins(settings.model_dump(), enc_hook=_plain)
    return cast("dict[str, Any]", values)


def _plain(value: object) -> object:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a setting holds a {type(value).__name__}, which is no plain data")


def _server_info(settings: Settings) -> ServerInfo:
    return ServerInfo(
        version=version("pegboard"),
        host=settings.host,
        port=settings.port,
        data_dir=settings.data_dir,
        api_keys=tuple(key.get_secret_value() for key in settings.api_keys),
        keepalive_interval=settings.keepalive_interval,
        default_device=settings.default_device,
        schema_error_status=settings.schema_error_status.model_dump(),
        started_at=time.time(),
    )
