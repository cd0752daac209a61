"""Settings on the command line: every field with a flag, the kernel's and the plugins'."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from pegboard_kernel.cli.parser import Parser
from pegboard_kernel.faults import StartupError
from pegboard_kernel.inventory import take_inventory
from pegboard_kernel.plugin_loading import Classes, load_classes, order_classes, select
from pegboard_kernel.plugin_records import PluginRecords
from pegboard_kernel.settings import Settings
from pegboard_kernel.settings_sources import (
    PLUGINS,
    Layer,
    SettingField,
    build_settings,
    check_sections,
    kernel_fields,
    plugin_fields,
    read_layer,
)

COMMON = ("data_dir", "catalog", "config")
"""Settings that every command takes."""


@dataclass(frozen=True)
class SettingFlags:
    """Know which settings a command takes, and read them."""

    fields: Sequence[SettingField]
    classes: Classes = field(default_factory=Classes)

    def layer(self, namespace: argparse.Namespace) -> Layer:
        """Return every given value with its source."""
        paths = {field.path for field in self.fields}
        flags = {path: value for path, value in vars(namespace).items() if path in paths}
        return read_layer(self.fields, flags, os.environ)

    def settings(self, namespace: argparse.Namespace) -> Settings:
        """Return the validated settings; raises `StartupError`."""
        layer = self.layer(namespace)
        settings = build_settings(layer)
        check_sections(layer, settings, self.classes)
        return settings


def add_common_flags(parser: Parser, *further: str) -> SettingFlags:
    """Add what every command takes, and the flags of the `further` settings."""
    _add_json(parser)
    fields = kernel_fields()
    _add(parser, "settings", [one for one in fields if one.path in (*COMMON, *further)])
    return SettingFlags(fields)


def add_client_flags(parser: Parser) -> SettingFlags:
    """Add what a command needs that talks to a running server."""
    return add_common_flags(parser, "host", "port", "api_keys")


def find_setting_flags(arguments: Sequence[str]) -> SettingFlags:
    """Find every setting, those of the plugins that `arguments` select included."""
    fields = kernel_fields()
    classes = _classes(fields, arguments)
    return SettingFlags([*fields, *plugin_fields(classes)], classes)


def add_setting_flags(parser: Parser, flags: SettingFlags) -> None:
    """Add the flags of all settings, each plugin's in a group of its own, and `--json`."""
    _add_json(parser)
    owned = [one for one in flags.fields if one.path.startswith(PLUGINS)]
    _add(parser, "settings", [one for one in flags.fields if one not in owned])
    for name in flags.classes:
        mine = [one for one in owned if one.path.startswith(f"{PLUGINS}{name}.")]
        _add(parser, f"settings of the plugin {name}", mine)


def _classes(fields: Sequence[SettingField], arguments: Sequence[str]) -> Classes:
    """Load the selected plugins' classes, to know their settings' names."""
    early = Parser(prog="pegboard", add_help=False, exit_on_error=False)
    _add(early, "", fields)
    namespace = argparse.Namespace()
    with contextlib.suppress(argparse.ArgumentError):  # the command's own parser tells it
        early.parse_known_args(list(arguments), namespace)
    settings = build_settings(SettingFlags(fields).layer(namespace))
    inventory = take_inventory()
    records = PluginRecords(inventory)
    return order_classes(load_classes(select(inventory, records, settings), records), records)


def _add_json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def _add(parser: Parser, title: str, fields: Sequence[SettingField]) -> None:
    group = parser.add_argument_group(title)
    for one in fields:
        if one.flag is None:
            continue
        options: dict[str, object] = {"dest": one.path, "default": argparse.SUPPRESS}
        options["help"] = _help(one)
        if one.boolean:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["action"] = "append" if one.repeatable else "store"
            options["metavar"] = one.path.rpartition(".")[2].upper()
        try:
            group.add_argument(one.flag, **options)  # type: ignore[arg-type]  # argparse types each option apart
        except argparse.ArgumentError:
            message = f"{one.path}: the flag {one.flag} belongs to another setting already"
            raise StartupError(message) from None


def _help(one: SettingField) -> str:
    text = one.info.description or ""
    default = one.info.default
    told = f" Default: {default}." if isinstance(default, (int, float, str)) and default else ""
    return f"{text}{told} [{', '.join(one.env)}]".replace("%", "%%")
