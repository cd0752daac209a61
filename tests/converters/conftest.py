"""The converter of the OpenVINO backends, with a real interpreter or one that plays a part."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pegboard_contracts.converters import ConversionOrder
from pegboard_converters.optimum_intel import plugin

MakeOrder = Callable[..., ConversionOrder]


def optimum_intel(python: Path | str | None) -> plugin:
    """Make the converter with an interpreter of its own."""
    made = plugin()
    made.name = "optimum_intel"
    made.configure(plugin.Settings.model_validate({"python": python and str(python)}))
    return made


@pytest.fixture
def make_order(tmp_path: Path) -> MakeOrder:
    """Order a conversion of a source into a folder that is not there yet."""

    def make(source: Path, backend: str = "openvino-genai", **options: Any) -> ConversionOrder:
        target = tmp_path / "made" / "target"
        target.parent.mkdir(exist_ok=True)
        return ConversionOrder(model="m", source=source, target=target, backend=backend, **options)

    return make


@pytest.fixture
def interpreter(tmp_path: Path) -> Callable[[str], Path]:
    """Make an interpreter that has every library and whose export is the given code.

    `say(field=value)` of the code tells a line as the export does; `order` is the order.
    """

    def make(code: str) -> Path:
        path = tmp_path / "python"
        path.write_text(
            f"#!{sys.executable}\n"
            "import json, os, pathlib, signal, sys, time\n"
            "if sys.argv[1] == '-c':\n"
            "    sys.exit()\n"
            "order = json.loads(sys.argv[2])\n"
            "def say(**fields):\n"
            "    print(json.dumps(fields), flush=True)\n" + code
        )
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Make a folder that has the one file every model has."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder
