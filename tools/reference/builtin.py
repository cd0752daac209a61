"""The built-in plugins, read from pyproject.toml so that no install is needed."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from pegboard_contracts.plugin import Plugin

GROUP = "pegboard."


class BuiltIn(NamedTuple):
    """Name a plugin of this repository and hold what its entry point leads to."""

    kind: str
    name: str
    module: ModuleType
    plugin: type[Plugin]


def built_ins(root: Path) -> list[BuiltIn]:
    """Import every plugin that the project file lists, by kind and name."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: list[BuiltIn] = []
    for group, entries in sorted(project["entry-points"].items()):
        if not group.startswith(GROUP):
            continue
        for name, address in sorted(entries.items()):
            module_name, _, attribute = address.partition(":")
            module = importlib.import_module(module_name)
            found.append(BuiltIn(group[len(GROUP) :], name, module, getattr(module, attribute)))
    return found
