"""The processes that are measured: how they are started, asked, billed and ended."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
import psutil

from tools.bench.work import Outcome, Work

ROOT = Path(__file__).resolve().parents[2]
_TIME_LIMIT = 300.0
_URL = re.compile(r"https?://[^\s]+")


class Measured:
    """Hold a process and the children it has, and bill their CPU."""

    def __init__(self, command: Sequence[str], log: IO[bytes]) -> None:
        """Start it; `started_in` is the time to its first line that `is_ready` accepts."""
        began = time.perf_counter()
        self._process = subprocess.Popen(  # noqa: S603 - our own commands
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT
        )
        with self._limited():
            self.ready_line = self._wait_until_ready()
        self.started_in = time.perf_counter() - began
        self._root = psutil.Process(self._process.pid)

    def is_ready(self, line: str) -> bool:
        """Tell whether a line of its output means that it can be asked."""
        return line.strip() == "ready"

    def _wait_until_ready(self) -> str:
        assert self._process.stdout is not None  # noqa: S101 - it is piped above
        for raw in self._process.stdout:
            line = raw.decode(errors="replace")
            if self.is_ready(line):
                return line
        raise RuntimeError(f"{self._process.args!r} ended before it was ready; see the log")

    def ask(self, work: Work) -> Outcome:
        """Send work and wait for its outcome."""
        assert self._process.stdin is not None  # noqa: S101 - it is piped above
        assert self._process.stdout is not None  # noqa: S101 - the same
        self._process.stdin.write(msgspec.json.encode(work) + b"\n")
        self._process.stdin.flush()
        with self._limited():
            answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._process.args!r} ended while it was asked; see the log")
        return msgspec.json.decode(answer, type=Outcome)

    @contextlib.contextmanager
    def _limited(self) -> Generator[None, None, None]:
        """Kill what takes too long, which ends its output."""
        timer = threading.Timer(_TIME_LIMIT, self._process.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def own_cpu(self) -> float:
        """Return the CPU seconds of the process alone."""
        return _cpu(self._root)

    def all_cpu(self) -> float:
        """Return the CPU seconds of the process and its children."""
        return _cpu(self._root) + sum(_cpu(c) for c in self._root.children(recursive=True))

    def close(self) -> None:
        """End it the polite way, and wait."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class Server(Measured):
    """Be `pegboard serve`, ready when it prints its URL."""

    def is_ready(self, line: str) -> bool:
        """Tell whether the line holds the URL."""
        return _URL.search(line) is not None

    @property
    def url(self) -> str:
        """Return where it listens."""
        found = _URL.search(self.ready_line)
        assert found is not None  # noqa: S101 - it was ready by this line
        return found[0].rstrip("/.,")


def _cpu(process: psutil.Process) -> float:
    if sys.platform == "linux":
        # The scheduler's own clock of that process: psutil counts in steps of 10 ms.
        return time.clock_gettime((~process.pid << 3) | 2)
    times = process.cpu_times()
    return float(times.user + times.system)


def busy_cpu() -> float:
    """Return the CPU seconds that the whole machine has worked."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def server_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line of a server on a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    program = Path(sys.executable).with_name("pegboard")
    return [str(program), "serve", "--port", str(port), *arguments]


@contextlib.contextmanager
def started(process: Measured) -> Generator[Measured, None, None]:
    """End a process when the block ends."""
    try:
        yield process
    finally:
        process.close()


def child_command(module: str, *arguments: str) -> list[str]:
    """Return the command line of one of this folder's modules."""
    return [sys.executable, "-m", f"tools.bench.{module}", *arguments]


def bare_command(options: dict[str, Any]) -> list[str]:
    """Return the command line of the bare engine."""
    return child_command("bare", msgspec.json.encode(options).decode())
