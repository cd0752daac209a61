"""The command line against a real server: every call is a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunningServer, start
from tests.sources.hub_server import HubServer, running_hub

Json = dict[str, Any]
Ran = subprocess.CompletedProcess[str]

_CLI = [sys.executable, "-m", "pegboard_kernel.cli"]
_SECONDS = 120


@dataclass
class Shell:
    """Run commands in a folder, against one server or none."""

    folder: Path
    environment: dict[str, str]
    server: RunningServer | None = None
    seconds: float = _SECONDS

    @property
    def url(self) -> str:
        assert self.server is not None
        return self.server.url

    def run(self, *arguments: str, stdin: str = "", **variables: str) -> Ran:
        return subprocess.run(
            [*_CLI, *arguments],
            env=self.environment | variables,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=self.seconds,
            check=False,
        )

    def models(self, *arguments: str, **variables: str) -> str:
        """Run `pegboard models ...`, which must succeed, and return what it prints."""
        done = self.run("models", *arguments, **variables)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    def read(self, *arguments: str) -> Json:
        """Run `pegboard models ... --json`, which must succeed, and return what it prints."""
        found: Json = json.loads(self.models(*arguments, "--json"))
        return found

    def refused(self, *arguments: str, status: int = 1, **variables: str) -> str:
        """Run a command that must fail, and return its one line."""
        done = self.run(*arguments, **variables)
        assert done.returncode == status, done.stdout + done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("pegboard")
        return line

    def state(self, model: str) -> Json:
        """Ask the server itself for a model."""
        shown = httpx.get(f"{self.url}/v1/models/status", timeout=60).json()
        return next(one for one in shown["models"]["available"] if one["id"] == model)

    def script(self, name: str, **script: Any) -> str:
        """Write a script and return its source."""
        (self.folder / f"{name}.json").write_text(json.dumps(script))
        return f"scripted:{name}.json"

    @contextmanager
    def begin(self, *arguments: str) -> Generator[subprocess.Popen[str]]:
        """Begin a command whose standard error is read line by line."""
        with subprocess.Popen(
            [*_CLI, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def interrupt(self, word: str, *arguments: str) -> tuple[int, str]:
        """Send SIGINT as soon as a line holds a word; return the exit code and the rest."""
        with self.begin(*arguments) as process:
            assert process.stderr
            for line in process.stderr:
                if word in line:
                    process.send_signal(signal.SIGINT)
                    break
            else:
                pytest.fail(f"it ended before '{word}'")
            rest = process.stderr.read()
            return process.wait(_SECONDS), rest

    def on_terminal(self, *arguments: str, typed: str = "", **variables: str) -> tuple[int, str]:
        """Run a command in a terminal; return its exit code and all that was shown."""
        terminal, end = pty.openpty()
        with subprocess.Popen(
            [*_CLI, *arguments],
            env=self.environment | {"TERM": "xterm"} | variables,
            cwd=self.folder,
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
        ) as process:
            os.close(end)
            shown = b""
            try:
                # The end of a terminal is an error on Linux.
                with contextlib.suppress(OSError):
                    while piece := os.read(terminal, 4096):
                        shown += piece
                        if typed and b": " in shown:
                            os.write(terminal, f"{typed}\n".encode())
                            typed = ""
                return process.wait(_SECONDS), shown.decode()
            finally:
                process.kill()
                os.close(terminal)


@dataclass
class Relay:
    """Pass connections on to a server, remember their paths, and cut what a test names."""

    port: int
    target: int
    cut: str = ""
    paths: list[str] = field(default_factory=list[str])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with (
            client,
            socket.create_connection(("127.0.0.1", self.target)) as server,
            contextlib.suppress(OSError),
        ):
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65536)
            path = head.split(b" ", 2)[1].decode()
            self.paths.append(path)
            server.sendall(head)
            threading.Thread(target=_copy, args=(client, server), daemon=True).start()
            pieces = 0
            while piece := server.recv(65536):
                client.sendall(piece)
                pieces += 1
                if self.cut and path.startswith(self.cut) and pieces == 3:
                    return


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)


@contextmanager
def relaying(url: str, cut: str = "") -> Generator[Relay]:
    """Run a relay in front of a server."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = int(url.rpartition(":")[2])
        relay = Relay(listener.getsockname()[1], port, cut)
        threading.Thread(target=relay.serve, args=(listener,), daemon=True).start()
        yield relay


MakeShell = Callable[..., Shell]


def _environment(folder: Path) -> dict[str, str]:
    ours = ("PEGBOARD_", "OV_LLM_", "HF_", "HUGGING")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    kept.pop("NO_COLOR", None)
    return {**kept, "PEGBOARD_DATA_DIR": str(folder / "data"), "COLUMNS": "120"}


@pytest.fixture(scope="module")
def make_shell(tmp_path_factory: pytest.TempPathFactory) -> Generator[MakeShell]:
    """Start servers that live as long as their module, each with a shell."""
    with ExitStack() as stack:

        def make(*arguments: str, env: Mapping[str, str] | None = None) -> Shell:
            folder = tmp_path_factory.mktemp("shell")
            home = {"HF_HOME": str(folder / "home"), "PEGBOARD_PLUGINS__HUB__KEYRING": "false"}
            nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9"}
            server = start(folder, *arguments, env=nowhere | home | dict(env or {}))
            stack.callback(server.stop)
            environment = _environment(folder)
            environment["PEGBOARD_PORT"] = server.url.rpartition(":")[2]
            return Shell(folder, environment, server)

        yield make


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """Give a shell without a server."""
    return Shell(tmp_path, _environment(tmp_path) | {"PEGBOARD_PORT": "1"})


@pytest.fixture(scope="module")
def hub() -> Generator[HubServer]:
    with running_hub() as server:
        yield server
