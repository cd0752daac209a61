"""Fixtures: a folder of plugins made on the fly, and applications built of it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from pegboard_kernel.app import Application, build_app
from pegboard_kernel.settings import Settings

from tests.kernel.plugin_site import Build, Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.setattr(sys, "path", [str(path), *sys.path])
    importlib.invalidate_caches()
    return Site(path)


@pytest.fixture
def build(site: Site, tmp_path: Path) -> Build:
    """Build an application of the site's plugins alone; the guards are disabled by name."""

    def build(*, disabled: tuple[str, ...] = (), **changes: Any) -> Application:
        changes |= {
            "data_dir": tmp_path / "data",
            "disabled": ("body_limit", "network_guard", *disabled),
        }
        return build_app(Settings.model_validate(changes), entry_points=site.entry_points())

    return build
