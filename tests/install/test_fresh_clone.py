"""What the README promises, from a fresh clone in a path with blanks, as an ordinary user."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.install.conftest import Sandbox, Serve, Served

pytestmark = [pytest.mark.slow, pytest.mark.real_model, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
URL_OF_README = "http://127.0.0.1:8000"
SECONDS_OF_A_SECOND_START = 15


@pytest.fixture(scope="module")
def clone(sandbox: Sandbox) -> Path:
    """Clone the repository; what is not committed is not in it."""
    target = sandbox.folder / "a path with blanks" / "pegboard"
    command = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(target)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    sandbox.own()
    return target


def make_serve(serve: Serve, clone: Path, port: int) -> Served:
    return serve(["make", "serve", f"PORT={port}"], clone, f"http://127.0.0.1:{port}")


def content(sandbox: Sandbox, command: str) -> str:
    """Run a curl line of a document and return the answer's text."""
    assert command.startswith("curl ")
    answer = json.loads(sandbox.run(["bash", "-c", f"{command} --silent"], sandbox.folder))
    text: str = answer["choices"][0]["message"]["content"]
    return text


def test_two_commands_and_the_snippet_work(
    sandbox: Sandbox, clone: Path, serve: Serve, free_port: int
) -> None:
    server = make_serve(serve, clone, free_port)
    url = f"http://127.0.0.1:{free_port}"
    (of_readme,) = re.findall(r"^curl .*$", README, re.MULTILINE)
    assert content(sandbox, of_readme.replace(URL_OF_README, url))
    (of_make,) = [line.strip() for line in server.lines if line.strip().startswith("curl ")]
    assert url in of_make
    assert content(sandbox, of_make)
    (snippet,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert URL_OF_README in snippet
    ran = subprocess.run(
        [sys.executable, "-c", snippet.replace(URL_OF_README, url)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ran.stdout.strip()
    server.stop()


def test_a_second_start_takes_seconds(clone: Path, serve: Serve, free_port: int) -> None:
    """The best of three; a machine with more work than processors gets longer by as much."""
    if not (clone / ".venv" / "installed-serve").exists():
        make_serve(serve, clone, free_port).stop()
    for last in (False, False, True):
        server = make_serve(serve, clone, free_port)
        server.stop()
        share = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        if server.seconds < SECONDS_OF_A_SECOND_START * share:
            break
        assert not last, f"{server.seconds} seconds"


def test_make_test_runs_there(sandbox: Sandbox, clone: Path) -> None:
    selection = "tests/middlewares tests/sources"
    printed = sandbox.run(["make", "test", f"ARGS={selection}"], clone)
    assert re.search(r"\d+ passed", printed)


def test_ci_runs_every_step_and_fails_when_one_does(sandbox: Sandbox, tmp_path: Path) -> None:
    """With a `make` that fails at one step, the script goes on, and ends with 1."""
    programs = tmp_path / "bin"
    programs.mkdir()
    make = programs / "make"
    make.write_text('#!/bin/sh\necho "ran $1"\ntest "$1" != test\n')
    make.chmod(0o755)
    ran = subprocess.run(
        [str(ROOT / ".ci" / "run")],
        env=sandbox.environment | {"PATH": f"{programs}:{sandbox.environment['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert [line for line in ran.stdout.splitlines() if line.startswith("ran ")] == [
        "ran check",
        "ran test",
        "ran test",  # its failures once more
        "ran test-slow",
    ]
    assert "failed: test\n" in ran.stdout
