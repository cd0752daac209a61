"""Servers whose models come from a source and a converter that do what a file says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from pegboard_contracts.converters import Converter
from pegboard_contracts.sources import ModelSource
from pegboard_converters.scripted_phases import ScriptedPhases
from pegboard_kernel.board import Board

from tests.kernel.runtime import board
from tests.lifecycle.stage_plugins import StageConverter, StageSource

ROOT = Path(__file__).resolve().parents[2]


def of_scripts() -> Board:
    """Make the board of scripted models that are converted by their scripts."""
    return _extended(converters={"scripted_phases": ScriptedPhases()})


def of_stage(*, converter: bool = True) -> Board:
    """Make the board of models that the stage plays."""
    converters: dict[str, Converter] = {"staged": StageConverter()} if converter else {}
    return _extended(converters=converters, sources={"stage": StageSource()})


def _extended(
    converters: Mapping[str, Converter], sources: Mapping[str, ModelSource] | None = None
) -> Board:
    for name, plugin in {**converters, **(sources or {})}.items():
        plugin.name = name
        plugin.configure(type(plugin).Settings())
    known = board()
    return Board(
        backends=known.backends,
        converters=converters,
        tool_formats=known.tool_formats,
        reasoning_formats=known.reasoning_formats,
        model_sources={**known.model_sources, **(sources or {})},
        sections=known.sections,
    )


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the stage's plugins for every process that is started; give a folder for acts."""
    info = tmp_path / "site" / "stage-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stage\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[pegboard.model_sources]\nstage = tests.lifecycle.stage_plugins:StageSource\n"
        "[pegboard.converters]\nstaged = tests.lifecycle.stage_plugins:StageConverter\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(info.parent), str(ROOT)]))
    folder = tmp_path / "stage"
    folder.mkdir()
    (folder / "acts.json").write_text("{}")
    return folder
