"""`pegboard config`: every setting in force and its source, and the presets."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any, cast

import msgspec
from pydantic import BaseModel, SecretStr

from pegboard_kernel.cli.output import print_json, print_table
from pegboard_kernel.cli.parser import Parser
from pegboard_kernel.cli.setting_flags import (
    SettingFlags,
    add_common_flags,
    add_setting_flags,
    find_setting_flags,
)
from pegboard_kernel.compat import PRESETS
from pegboard_kernel.settings_sources import SettingField, build_settings, check_sections

_EXAMPLES = """\
examples:
  pegboard config show
  pegboard config show --compat openai --port 9000 --json
  pegboard config compat

precedence: flag, environment, configuration file, compatibility preset, default
exit codes: 0 success, 2 bad usage or bad settings
"""


def configure(parser: Parser, arguments: Sequence[str]) -> None:
    """Add `show` and `compat`."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    show = actions.add_parser("show", help="show every setting and its source", epilog=_EXAMPLES)
    flags = find_setting_flags(arguments)
    add_setting_flags(show, flags)
    show.set_defaults(run=partial(_show, flags))
    compat = actions.add_parser("compat", help="list the compatibility presets", epilog=_EXAMPLES)
    add_common_flags(compat)
    compat.set_defaults(run=_compat)


def _show(flags: SettingFlags, namespace: argparse.Namespace) -> int:
    layer = flags.layer(namespace)
    settings = build_settings(layer)
    sections = check_sections(layer, settings, flags.classes)
    rows: list[dict[str, Any]] = []
    for field in flags.fields:
        given = layer.get(field.path)
        value = _plain(_in_force(field, settings, sections))
        rows.append(
            {"name": field.path, "value": value, "source": given.source if given else "default"}
        )
    if namespace.json:
        print_json({"settings": rows})
    else:
        table = [(row["name"], _text(row["value"]), row["source"]) for row in rows]
        print_table(("SETTING", "VALUE", "SOURCE"), table)
    return 0


def _in_force(field: SettingField, settings: BaseModel, sections: Mapping[str, BaseModel]) -> Any:  # noqa: ANN401 - a setting of any type
    names = field.path.split(".")
    if names[0] == "plugins":
        return reduce(getattr, names[2:], sections[names[1]])
    return reduce(getattr, names, settings)


def _plain(value: object) -> Any:  # noqa: ANN401 - plain data of any shape
    return msgspec.to_builtins(value, enc_hook=_masked)


def _masked(value: object) -> Any:  # noqa: ANN401 - plain data of any shape
    if isinstance(value, (SecretStr, Path)):
        return str(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return repr(value)


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, cast("Sequence[object]", value))) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def _compat(namespace: argparse.Namespace) -> int:
    if namespace.json:
        presets = [
            {"name": name, "summary": preset.summary, "values": dict(preset.values)}
            for name, preset in PRESETS.items()
        ]
        print_json({"presets": presets})
        return 0
    rows = [
        (
            name,
            ", ".join(f"{path} = {value}" for path, value in preset.values.items()),
            preset.summary,
        )
        for name, preset in PRESETS.items()
    ]
    print_table(("PRESET", "SETTINGS", "MEANING"), rows)
    return 0
