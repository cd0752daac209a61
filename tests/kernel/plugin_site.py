"""Plugins made on the fly: tiny distributions in a folder, as pip would install them."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

from pegboard_kernel.app import Application

_numbers = itertools.count()

HEAD = """
from pegboard_contracts.plugin import Plugin, PluginSettings, hookimpl
from pydantic import Field, SecretStr
"""


class Site:
    """A folder on `sys.path` with distributions in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(
        self,
        name: str,
        code: str,
        *,
        kind: str = "routes",
        distribution: str | None = None,
        version: str = "1.2.3",
    ) -> str:
        """Install a plugin `name`, whose module ends with `plugin = ...`; returns the module."""
        module = f"{name}_module_{next(_numbers)}"
        (self.path / f"{module}.py").write_text(HEAD + textwrap.dedent(code), encoding="utf-8")
        label = distribution or f"dist-{name}"
        info = self.path / f"{label.replace('-', '_')}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {label}\nVersion: {version}\n", encoding="utf-8"
        )
        with (info / "entry_points.txt").open("a", encoding="utf-8") as points:
            points.write(f"[pegboard.{kind}]\n{name} = {module}:plugin\n")
        return module

    def entry_points(self) -> list[EntryPoint]:
        """Find what was installed here."""
        return [
            point
            for distribution in distributions(path=[str(self.path)])
            for point in distribution.entry_points
        ]


Build = Callable[..., Application]
"""Builds an application of a site's plugins with changed settings."""
