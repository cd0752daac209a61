"""One child process, seen from the server's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, cast

import msgspec
from pegboard_contracts.errors import ApiError, error_from_wire

from pegboard_kernel.engines.frames import (
    Answer,
    Call,
    Close,
    FrameSplitter,
    Report,
    encode_frame,
)

logger = logging.getLogger(__name__)

_REPORTS = 1
_CLOSE_SECONDS = 2.0
_decoder = msgspec.msgpack.Decoder(Report)


class ChildProcess(asyncio.SubprocessProtocol):
    """Start, speak to and end one child.

    Reports are decoded where the loop reads the pipe and handed over at once, without a
    task. `on_report` gets every report but answers, which belong to `call`. `on_gone` is
    called once, when the process has ended and all that it said was read. `on_read` is
    called when all reports that arrived together were handed over. Writing never waits: what
    the pipe does not take is kept.
    """

    def __init__(
        self,
        kind: str,
        on_report: Callable[[Report], None],
        on_gone: Callable[[], None],
        on_read: Callable[[], None] | None = None,
    ) -> None:
        """Prepare a child of a kind, `engine` or `preparer`; nothing is started."""
        self.kind = kind
        self.gone = False
        self.pid = 0
        self._on_report = on_report
        self._on_gone = on_gone
        self._on_read = on_read
        self._splitter = FrameSplitter()
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._last_call = 0
        self._transport: asyncio.SubprocessTransport | None = None
        self._writer: asyncio.WriteTransport | None = None
        self._ended: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Start the process. Raises `ApiError` 503 when the system cannot."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        # Safe path: a file of the working directory must not stand in for a module.
        command = (sys.executable, "-P", "-m", "pegboard_kernel.child")
        try:
            transport, _ = await loop.subprocess_exec(
                lambda: self, *command, self.kind, str(os.getpid()), stderr=None
            )
        except OSError as error:
            message = f"No {self.kind} process can be started: {error.strerror}."
            raise ApiError(503, message, code="process_not_started", retry_after=30) from None
        self._transport = transport
        self.pid = transport.get_pid()
        self._writer = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))

    def send(self, command: msgspec.Struct) -> None:
        """Send a command; to a process that is gone, nothing."""
        if self._writer is not None and not self.gone:
            self._writer.write(encode_frame(command))

    def call(self, name: str, arguments: dict[str, Any] | None = None) -> asyncio.Future[Any]:
        """Call a function of the child; the future holds its value or its `ApiError`."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.gone:
            future.set_exception(self._ended_error())
            return future
        self._last_call += 1
        self._calls[self._last_call] = future
        self.send(Call(self._last_call, name, arguments or {}))
        return future

    def kill(self) -> None:
        """End the process now, whatever it is doing."""
        if self._transport is not None and not self.gone:
            with contextlib.suppress(ProcessLookupError):
                self._transport.kill()

    async def close(self) -> None:
        """Let the process end itself, and end it when it does not within two seconds."""
        if self._transport is None or self._ended is None:
            return
        self.send(Close())
        await asyncio.wait((self._ended,), timeout=_CLOSE_SECONDS)
        self.kill()
        await self._ended

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        """Decode and hand over what arrived."""
        if fd != _REPORTS or not isinstance(data, bytes):
            return
        try:
            for payload in self._splitter.feed(data):
                report = _decoder.decode(payload)
                if isinstance(report, Answer):
                    self._answered(report)
                else:
                    self._on_report(report)
        except (ValueError, msgspec.MsgspecError):
            logger.exception("the %s process %s breaks the protocol", self.kind, self.pid)
            self.kill()
        if self._on_read is not None:
            self._on_read()

    def _answered(self, answer: Answer) -> None:
        future = self._calls.pop(answer.call_id, None)
        if future is None or future.done():
            return
        if answer.error is None:
            future.set_result(answer.value)
        else:
            future.set_exception(error_from_wire(answer.error))

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the process has ended and its pipes are empty."""
        del exc
        self.gone = True
        for future in self._calls.values():
            if not future.done():
                future.set_exception(self._ended_error())
        self._calls.clear()
        if self._transport is not None:
            self._transport.close()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        self._on_gone()

    def _ended_error(self) -> ApiError:
        message = f"The model's {self.kind} process has ended; try again in a moment."
        return ApiError(503, message, code=f"{self.kind}_ended", retry_after=1)

    @property
    def exit_code(self) -> int | None:
        """Return how the process ended: a status, or minus a signal's number."""
        return None if self._transport is None else self._transport.get_returncode()
