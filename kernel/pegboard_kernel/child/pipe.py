"""The child's end of the two pipes: commands in, reports out, one thread."""

from __future__ import annotations

import os
import select

import msgspec

from pegboard_kernel.engines.frames import Command, FrameSplitter, encode_frame

_READ_BYTES = 1 << 18


class CommandPipe:
    """Read commands and write reports. Writing waits for the server, reading need not."""

    def __init__(self, commands: int, reports: int) -> None:
        """Use two open file descriptors."""
        self._commands = commands
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
        ready, _, _ = select.select((self._commands,), (), (), timeout)
        if not ready:
            return []
        data = os.read(self._commands, _READ_BYTES)
        if not data:
            raise EOFError
        return [self._decoder.decode(payload) for payload in self._splitter.feed(data)]

    def send(self, report: msgspec.Struct) -> None:
        """Write one report completely. Raises `OSError` when the server is gone."""
        frame = memoryview(encode_frame(report))
        while frame:
            frame = frame[os.write(self._reports, frame) :]
