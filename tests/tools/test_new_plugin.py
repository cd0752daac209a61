"""The scaffold writes plugins that work, keep the laws, and are documented."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parent.parent.parent
KINDS = (
    "backends",
    "converters",
    "middlewares",
    "model_sources",
    "reasoning_formats",
    "routes",
    "structured_outputs",
    "tool_formats",
)
KINDS_WITHOUT_A_SCAFFOLD = {"stores": "a store is best begun from `memory`"}


def run(copy: Path, *arguments: str | Path, site: Path | None = None) -> tuple[int, str]:
    """Run Python in the copy; nothing of the checkout's own modules is imported there."""
    roots = [site] if site else [copy / folder for folder in ("contracts", "kernel", "plugins")]
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, roots))},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_every_kind_has_a_scaffold() -> None:
    folders = [path for path in (ROOT / "plugins").iterdir() if path.is_dir()]
    kinds = {path.name.removeprefix("pegboard_") for path in folders}
    assert kinds - set(KINDS) == set(KINDS_WITHOUT_A_SCAFFOLD)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files under version control, and write one plugin of each kind there."""
    target = tmp_path_factory.mktemp("copy")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    for kind in KINDS:
        status, printed = run(target, "tools/new_plugin.py", kind, f"peg_{kind}")
        assert status == 0, printed
    return target


def test_its_tests_pass(copy: Path, tmp_path: Path) -> None:
    """An installed copy, as a wheel, passes the test that came with each plugin."""
    status, printed = run(copy, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    assert status == 0, printed
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    tests = sorted(copy.glob("tests/*/test_peg_*.py"))
    assert len(tests) == len(KINDS)
    status, printed = run(copy, "-m", "pytest", "-p", "no:cacheprovider", *tests, site=site)
    assert status == 0, printed
    assert " passed" in printed


def test_it_writes_the_entry_point_and_the_reference(copy: Path) -> None:
    project = (copy / "pyproject.toml").read_text(encoding="utf-8")
    page = (copy / "docs" / "reference" / "plugins.md").read_text(encoding="utf-8")
    for kind in KINDS:
        assert f'peg_{kind} = "pegboard_{kind}.peg_{kind}:plugin"\n' in project
        assert f"### `peg_{kind}`\n" in page


@pytest.mark.parametrize("name", ["hermes", "Peg", "two-words", "_hidden", "peg_routes"])
def test_a_name_that_cannot_be_is_refused(copy: Path, name: str) -> None:
    before = (copy / "pyproject.toml").read_bytes()
    status, printed = run(copy, "tools/new_plugin.py", "routes", name)
    assert status == 2
    assert name in printed
    assert (copy / "pyproject.toml").read_bytes() == before
