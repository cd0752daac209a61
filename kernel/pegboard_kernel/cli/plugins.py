"""`pegboard plugins`: what is installed, how it is, why, and what to do."""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Sequence
from functools import partial

from pegboard_contracts.plugin import Plugin
from pegboard_contracts.server import PluginRecord

from pegboard_kernel.app import build_app
from pegboard_kernel.cli.output import print_json, print_table
from pegboard_kernel.cli.parser import Parser
from pegboard_kernel.cli.setting_flags import SettingFlags, add_setting_flags, find_setting_flags
from pegboard_kernel.faults import StartupError, suggestion
from pegboard_kernel.settings_sources import plugin_fields

_EXAMPLES = """\
examples:
  pegboard plugins list
  pegboard plugins list --profile minimal --json
  pegboard plugins show hermes

states: active, disabled, missing (something is not installed), failed, incompatible
(another contract version), blocked (a plugin it requires is not active)
exit codes: 0 success, 2 bad usage or bad settings
"""


def configure(parser: Parser, arguments: Sequence[str]) -> None:
    """Add `list` and `show`."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    every = actions.add_parser("list", help="list all plugins", epilog=_EXAMPLES)
    flags = find_setting_flags(arguments)
    add_setting_flags(every, flags)
    every.set_defaults(run=partial(_list, flags))
    one = actions.add_parser("show", help="explain one plugin", epilog=_EXAMPLES)
    one.add_argument("name", metavar="NAME", help="the plugin's name")
    add_setting_flags(one, flags)
    one.set_defaults(run=partial(_show, flags))


def _list(flags: SettingFlags, namespace: argparse.Namespace) -> int:
    records = build_app(flags.settings(namespace)).records.plugins()
    if namespace.json:
        print_json({"plugins": records})
        return 0
    rows = [
        (one.kind, one.name, one.state, f"{one.distribution} {one.version}".strip(), _why(one))
        for one in records
    ]
    print_table(("KIND", "NAME", "STATE", "DISTRIBUTION", ""), rows)
    return 0


def _why(record: PluginRecord) -> str:
    if record.reason is None:
        return record.summary
    return f"{record.reason}; {record.remedy}" if record.remedy else record.reason


def _show(flags: SettingFlags, namespace: argparse.Namespace) -> int:
    application = build_app(flags.settings(namespace))
    record = application.records.get(namespace.name)
    if record is None:
        names = [one.name for one in application.records.plugins()]
        hint = suggestion(namespace.name, names)
        raise StartupError(f"no plugin is named '{namespace.name}'.{hint}")
    plugin_class = flags.classes.get(record.name)
    if namespace.json:
        print_json({"plugin": record, "settings": _settings_of(record.name, plugin_class)})
        return 0
    told = {
        "name": record.name,
        "kind": record.kind,
        "state": record.state,
        "summary": record.summary,
        "distribution": f"{record.distribution} {record.version}".strip(),
        "required": "yes" if record.required else "no",
        "reason": record.reason,
        "remedy": record.remedy,
        "requires": ", ".join(plugin_class.requires) if plugin_class else "",
        "after": ", ".join(plugin_class.after) if plugin_class else "",
    }
    for key, value in told.items():
        if value:
            print(f"{key + ':':14}{value}")
    for setting in _settings_of(record.name, plugin_class):
        print(f"setting:      {setting['name']}: {setting['description']}")
    error = application.records.error_of(record.name)
    if error is not None:
        print()
        print("".join(traceback.format_exception(error)), end="")
    return 0


def _settings_of(name: str, plugin_class: type[Plugin] | None) -> list[dict[str, str | None]]:
    if plugin_class is None:
        return []
    return [
        {"name": one.path, "flag": one.flag, "description": one.info.description}
        for one in plugin_fields({name: plugin_class})
    ]
