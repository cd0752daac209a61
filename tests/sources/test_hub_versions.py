"""The same tests with every major version of the hub's library that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
_SHOW = "import huggingface_hub; print(huggingface_hub.__version__)"


@pytest.fixture
def library(pytestconfig: pytest.Config, version: str) -> Path:
    """Give a folder with one version and what it needs, installed once."""
    cache: Any = pytestconfig.cache
    folder = Path(cache.mkdir("hub-libraries")) / version
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            staging = folder.with_name(f"{version}-staging")
            shutil.rmtree(staging, ignore_errors=True)
            install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(staging)]
            subprocess.run([*install, f"huggingface_hub=={version}"], check=True)
            staging.rename(folder)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(960)
@pytest.mark.parametrize("version", ["1.0.0", "1.21.0", "2.4.0"])
def test_the_source_works_with_the_library(library: Path, version: str) -> None:
    """The library is found before the one of this environment, which stays as it is."""
    env = os.environ | {"PYTHONPATH": str(library), "PYTHONDONTWRITEBYTECODE": "1"}
    shown = subprocess.run(
        [sys.executable, "-c", _SHOW], env=env, check=True, capture_output=True, text=True
    )
    assert shown.stdout.strip() == version
    folder = Path(__file__).parent
    tests = [str(file) for file in sorted(folder.glob("test_hub*.py")) if file != Path(__file__)]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-m", "not slow", *tests],
        cwd=ROOT,
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-4000:]
