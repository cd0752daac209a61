"""The page of commands, read from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import cast

from pegboard_kernel.cli.parser import COMMANDS, make_parser

from tools.reference.markdown import table

INTRODUCTION = """\
# Commands

`--data-dir`, `--catalog`, `--config` and `--json` are taken by every command. Exit codes: 0
success, 1 a fault while running, 2 bad usage or bad settings, 130 interrupted.\
"""
SETTINGS = """\
Further flags are those of the [settings](settings.md), the kernel's and those of the enabled
plugins.\
"""


def page(root: Path) -> str:
    """Write the page."""
    del root
    parser, commands = make_parser()
    rows = [
        (f"[`pegboard {name}`](#pegboard-{name})", one.summary) for name, one in COMMANDS.items()
    ]
    parts = [INTRODUCTION, table(("command", "does"), rows)]
    for name, command in commands.items():
        import_module(COMMANDS[name].module).configure(command, [])
        parts += _section(command, 2)
    return "\n\n".join([*parts, *_examples(parser)])


def _section(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{parser.prog}`"
    if parser.description:
        yield parser.description
    rows: list[tuple[str, str]] = []
    inner: list[argparse.ArgumentParser] = []
    has_settings = False
    for title, action in _actions(parser):
        if isinstance(choices := cast("object", action.choices), dict):
            inner += dict.fromkeys(cast("dict[str, argparse.ArgumentParser]", choices).values())
        elif title.startswith("settings"):
            has_settings = True
        elif action.help != argparse.SUPPRESS and "--help" not in action.option_strings:
            rows.append((_name(action), (action.help or "").replace("%%", "%")))
    if rows:
        yield table(("argument", "meaning"), rows)
    if has_settings and len(list(_setting_flags(parser))) > len(_COMMON):
        yield SETTINGS
    yield from _examples(parser)
    for one in inner:
        if one.epilog == parser.epilog:
            one.epilog = None  # shown already
        yield from _section(one, level + 1)


_COMMON = ("--data-dir", "--catalog", "--config")


def _setting_flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    for title, action in _actions(parser):
        if title.startswith("settings"):
            yield from action.option_strings[:1]


def _actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    # argparse has no public way to list arguments, and its help text differs by version.
    for group in parser._action_groups:  # noqa: SLF001
        for action in group._group_actions:  # noqa: SLF001
            yield group.title or "", action


def _name(action: argparse.Action) -> str:
    if not action.option_strings:
        shown = action.metavar if isinstance(action.metavar, str) else action.dest
        return f"`{shown}`" if action.nargs != "?" else f"`[{shown}]`"
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def _examples(parser: argparse.ArgumentParser) -> Iterator[str]:
    if parser.epilog:
        yield f"```text\n{parser.epilog.strip()}\n```"
