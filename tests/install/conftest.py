"""What the tests of installing share: clean environments, and servers that are waited for."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOBODY = 65534
_KEPT = ("PATH", "LANG", "SSL_CERT_FILE")


class Identity(TypedDict, total=False):
    """Carry the options of a process that runs as another user."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass
class Sandbox:
    """Be a folder and a user to install in: nobody where the tests run as root."""

    folder: Path
    user: int | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Return an environment without anything of the one the tests run in."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or name.startswith("PIP_")
        }
        return kept | {"HOME": str(self.folder / "home"), "PYTHONUNBUFFERED": "1"}

    @property
    def identity(self) -> Identity:
        """Return how a process of the user is started."""
        if self.user is None:
            return {}
        return {"user": self.user, "group": self.user, "extra_groups": []}

    def run(self, command: Sequence[str | Path], cwd: Path, timeout: float = 600.0) -> str:
        """Run a command and return what it printed; it must succeed."""
        ran = subprocess.run(
            command,
            cwd=cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **self.identity,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
        return ran.stdout

    def own(self) -> None:
        """Give everything in the folder to the user."""
        if self.user is not None:
            for path in [self.folder, *self.folder.rglob("*")]:
                os.chown(path, self.user, self.user, follow_symlinks=False)


@dataclass
class Served:
    """Be a server that has printed its URL."""

    process: subprocess.Popen[str]
    lines: list[str]
    seconds: float

    def stop(self) -> int:
        """Interrupt it as a terminal does and return its exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(60)


Serve = Callable[[Sequence[str | Path], Path, str], Served]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """Make a folder that another user can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="pegboard-install-"))
    folder.chmod(0o755)
    made = Sandbox(folder, NOBODY if os.geteuid() == 0 else None)
    (folder / "home").mkdir()
    made.own()
    yield made
    shutil.rmtree(folder)


@pytest.fixture
def serve(sandbox: Sandbox) -> Iterator[Serve]:
    """Start servers, wait for the URL each prints, and end them after the test."""
    started: list[tuple[subprocess.Popen[str], threading.Thread]] = []

    def start(command: Sequence[str | Path], cwd: Path, url: str) -> Served:
        begun = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=sandbox.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **sandbox.identity,
        )
        lines: list[str] = []
        ready = threading.Event()
        follower = threading.Thread(target=_follow, args=(process, lines, url, ready))
        follower.start()
        started.append((process, follower))
        ready.wait(600)
        assert any(line.rstrip().endswith(url) for line in lines), "".join(lines)
        return Served(process, lines, time.monotonic() - begun)

    yield start
    for process, follower in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        follower.join(10)


def _follow(
    process: subprocess.Popen[str], lines: list[str], url: str, ready: threading.Event
) -> None:
    assert process.stdout is not None
    with process.stdout as printed:
        for line in printed:
            lines.append(line)
            if line.rstrip().endswith(url):
                ready.set()
    ready.set()


@pytest.fixture
def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
