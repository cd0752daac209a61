"""Real clients against a real server: environments with pinned versions, made on demand.

An environment lives in pytest's cache under the hash of its pins, so that a second run finds
it. What runs in one is cut off from the user's home and from every network but this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from filelock import FileLock

_HERE = Path(__file__).parent
_INSTALL_SECONDS = 400
_RUN_SECONDS = 240
_NOWHERE = "http://127.0.0.1:9"

SCRIPT: dict[str, Any] = {
    # The prompts of coding agents are long.
    "context_tokens": 100_000,
    "tool_format": "hermes",
    "reasoning_format": "think_tags",
    "rules": [
        {"match": "Summarize the conversation so far", "pieces": ["The code ", "is 4711."]},
        {"match": "It is sunny", "pieces": ["Sunny ", "in ", "Paris."]},
        {"match": "pegboard-was-here", "pieces": ["The command ", "printed its line."]},
        {
            "match": "weather",
            "pieces": [
                "<think>",
                "which city",
                "</think>",
                "Let me look. ",
                "<tool_call>",
                '\n{"name": "get_weather", "arguments": {"city": ',
                '"Par',
                'is"}}',
                "\n</tool_call>",
            ],
        },
        {
            "match": "run the echo command",
            "pieces": [
                '<tool_call>{"name": "exec_command", "arguments": ',
                '{"cmd": "printf pegboard-%s-here was"}}',
                "</tool_call>",
            ],
        },
        {"match": "think", "pieces": ["<think>", "a ", "b", "</think>", "\n\n", "done"]},
        {"match": "person", "pieces": ['{"name": ', '"Ada", ', '"age": 36}']},
        {"match": "essay", "pieces": ["word "], "repeat": 64},
        {"match": "a story", "pieces": ["Once upon ", "a ", "time."], "delay_ms": 100},
        {"match": "slow", "pieces": ["x "], "repeat": 4000, "delay_ms": 25},
        {"match": "boom", "pieces": ["a ", "b ", "c "], "raise_after": 2},
    ],
    "default": {"echo": True},
}


@dataclass(frozen=True)
class Environment:
    """Hold one client's installation and a home of its own."""

    folder: Path

    @property
    def python(self) -> Path:
        scripts = "Scripts" if os.name == "nt" else "bin"
        return self.folder / "venv" / scripts / "python"

    @property
    def variables(self) -> dict[str, str]:
        """Return the whole environment of its processes: no home, no network, no telemetry."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "HTTP_PROXY": _NOWHERE,
            "HTTPS_PROXY": _NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LANGSMITH_TRACING": "false",
            "LANGCHAIN_TRACING_V2": "false",
            "DO_NOT_TRACK": "1",
        }

    def run(
        self,
        command: Sequence[str | Path],
        variables: Mapping[str, str],
        folder: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of this environment to its end."""
        return subprocess.run(
            [str(word) for word in command],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_RUN_SECONDS,
            cwd=folder or self.folder,
            env={**self.variables, **variables},
        )


class UnusableClientError(RuntimeError):
    """Say that a client cannot be asked, so that nothing is known about it."""


def _install(what: str, command: Sequence[str | Path]) -> None:
    try:
        done = subprocess.run(
            [str(word) for word in command],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_INSTALL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnusableClientError(f"{what} cannot be installed: {error}") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-2000:]
        raise UnusableClientError(f"{what} cannot be installed:\n{said}")


def _install_python(folder: Path, name: str) -> None:
    environment = Environment(folder)
    venv: list[str | Path] = [sys.executable, "-m", "venv", "--without-pip", folder / "venv"]
    _install(f"an environment for {name}", venv)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        environment.python,
        "install",
        "--quiet",
    ]
    pins = _HERE / "pins" / f"{name}.txt"
    _install(f"the Python client {name}", [*pip, "--no-deps", "--no-compile", "-r", pins])


def _install_node(folder: Path, name: str) -> None:
    shutil.copy(_HERE / "pins" / f"{name}.json", folder / "package.json")
    npm: list[str | Path] = [
        "npm",
        "install",
        "--prefix",
        folder,
        "--no-audit",
        "--no-fund",
        "--no-package-lock",
    ]
    _install(f"the npm client {name}", npm)


def _prepare(cache: Path, name: str) -> Environment:
    python = _HERE / "pins" / f"{name}.txt"
    pins = python if python.is_file() else python.with_suffix(".json")
    digest = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache / f"{name}-{digest}"
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "complete").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (_install_python if pins is python else _install_node)(folder, name)
            (folder / "complete").touch()
    return Environment(folder)


@dataclass(frozen=True)
class Outcome:
    """Tell how one check went; without an error it passed."""

    check: str
    error: str | None


Outcomes = dict[str, Outcome]


def _outcomes(environment: Environment, program: str, variables: Mapping[str, str]) -> Outcomes:
    runner = "run_checks.py" if program.endswith(".py") else "run_checks.mjs"
    # A copy, because Node looks for packages beside the program.
    for name in (runner, f"programs/{program}"):
        shutil.copy(_HERE / name, environment.folder)
    start = environment.python if program.endswith(".py") else "node"
    try:
        done = environment.run([start, runner, program], variables)
    except subprocess.TimeoutExpired as error:
        raise UnusableClientError(f"{program} does not end: {error}") from error
    if done.returncode != 0:
        said = f"{done.stdout}\n{done.stderr}"
        raise UnusableClientError(f"{program} ended with {done.returncode}:\n{said}")
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"check"')]
    found = [Outcome(**json.loads(line)) for line in lines]
    return {outcome.check: outcome for outcome in found}


T = TypeVar("T")


class Once:
    """Do each thing once a session; what failed fails every test that needs it."""

    def __init__(self) -> None:
        self._done: dict[str, Any] = {}

    def do(self, name: str, work: Callable[[], T]) -> T:
        if name not in self._done:
            try:
                self._done[name] = work()
            except UnusableClientError as error:
                self._done[name] = error
        done = self._done[name]
        if isinstance(done, UnusableClientError):
            pytest.fail(str(done))
        result: T = done
        return result


@pytest.fixture(scope="session")
def environment(pytestconfig: pytest.Config) -> Callable[[str], Environment]:
    """Give the environment of a client, by the name of its file in `pins`."""
    cache, once = pytestconfig.cache, Once()
    assert cache is not None
    folder = cache.mkdir("clients")
    return lambda name: once.do(name, lambda: _prepare(folder, name))


@pytest.fixture(scope="session")
def outcomes(environment: Callable[[str], Environment]) -> Callable[..., Outcomes]:
    """Run all checks of a program in a client's environment.

    `outcomes(program, client, variables)`; the program is a file in `programs`.
    """
    once = Once()

    def run(program: str, client: str, variables: Mapping[str, str]) -> Outcomes:
        home = environment(client)
        return once.do(program, lambda: _outcomes(home, program, variables))

    return run


@pytest.fixture
def script() -> dict[str, Any]:
    return SCRIPT
