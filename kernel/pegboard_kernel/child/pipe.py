"""The child's end of the two pipes: commands in, reports out."""

from __future__ import annotations

import os
import queue
import select
import sys
import threading
from typing import Protocol

import msgspec

from pegboard_kernel.engines.frames import Command, FrameSplitter, encode_frame

_READ_BYTES = 1 << 18


class Source(Protocol):
    """Read bytes with a time limit."""

    def read(self, timeout: float | None) -> bytes | None:
        """Return bytes, none at the end, `None` when the time is over."""
        ...


class SelectedSource:
    """Read a pipe that `select` understands: everywhere but on Windows."""

    def __init__(self, descriptor: int) -> None:
        """Use an open file descriptor."""
        self._descriptor = descriptor

    def read(self, timeout: float | None) -> bytes | None:
        """Wait in `select`, then read what is there."""
        ready, _, _ = select.select((self._descriptor,), (), (), timeout)
        return os.read(self._descriptor, _READ_BYTES) if ready else None


class ThreadedSource:
    """Read a pipe in a thread, for Windows, where nothing else can wait for one in time.

    The end of the pipe ends the process at once, whatever the main thread is doing.
    """

    def __init__(self, descriptor: int) -> None:
        """Start reading an open file descriptor."""
        self._read: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._pump, args=(descriptor,), daemon=True).start()

    def _pump(self, descriptor: int) -> None:
        try:
            while data := os.read(descriptor, _READ_BYTES):
                self._read.put(data)
        except OSError:
            pass
        os._exit(1)

    def read(self, timeout: float | None) -> bytes | None:
        """Wait for what the thread has read."""
        try:
            return self._read.get(timeout=timeout) if timeout != 0 else self._read.get_nowait()
        except queue.Empty:
            return None


class CommandPipe:
    """Read commands and write reports. Writing waits for the server, reading need not."""

    def __init__(self, source: Source, reports: int) -> None:
        """Use a source of commands and an open file descriptor for reports."""
        self._source = source
        self._reports = reports
        self._splitter = FrameSplitter()
        self._decoder = msgspec.msgpack.Decoder(Command)
        self._behind_first: list[Command] = []

    def receive_first(self) -> Command:
        """Wait for one command; those that came with it are received next."""
        while not (received := self.receive(None)):
            pass
        self._behind_first = received[1:]
        return received[0]

    def receive(self, timeout: float | None) -> list[Command]:
        """Return the commands that are there, or that come within `timeout` seconds.

        `None` waits for ever, 0 not at all. May return nothing before the time is over.
        Raises `EOFError` when the server is gone.
        """
        if self._behind_first:
            commands, self._behind_first = self._behind_first, []
            return commands
        data = self._source.read(timeout)
        if data is None:
            return []
        if not data:
            raise EOFError
        return [self._decoder.decode(payload) for payload in self._splitter.feed(data)]

    def send(self, report: msgspec.Struct) -> None:
        """Write one report completely. Raises `OSError` when the server is gone."""
        frame = memoryview(encode_frame(report))
        while frame:
            frame = frame[os.write(self._reports, frame) :]


def open_source(descriptor: int) -> Source:
    """Open the source of commands that works on this platform."""
    if sys.platform == "win32":
        return ThreadedSource(descriptor)
    return SelectedSource(descriptor)
