"""One engine child: its requests, its calls and the watch for hangs."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from typing import Any

from pegboard_contracts.engine import EngineInfo, Submission
from pegboard_contracts.errors import ApiError, error_from_wire

from pegboard_kernel.engines.child_process import ChildProcess
from pegboard_kernel.engines.frames import (
    Cancel,
    Events,
    Lost,
    Opening,
    Ready,
    Refused,
    Report,
    Submit,
)
from pegboard_kernel.engines.token_stream import TokenStream

logger = logging.getLogger(__name__)


class EngineClient:
    """Speak to one engine process from its start to its end.

    `on_gone` is called once with what running requests were told, when the process ended
    without being asked to. An engine that gives no sign of life for `hang_timeout` seconds
    while requests run, or does not end a cancelled request within them, is killed.
    """

    def __init__(
        self, opening: Opening, *, hang_timeout: float, on_gone: Callable[[ApiError], None]
    ) -> None:
        """Prepare; nothing is started."""
        self._opening = opening
        self._hang_timeout = hang_timeout
        self._on_gone = on_gone
        self._child = ChildProcess("engine", self._reported, self._child_gone, self._wake)
        self._streams: dict[int, TokenStream] = {}
        self._fed: list[TokenStream] = []
        self._cancelled: dict[int, float] = {}
        self._ids = itertools.count(1)
        self._opened: asyncio.Future[EngineInfo] | None = None
        self._fault: ApiError | None = None
        self._closing = False
        self._last_sign = 0.0
        self._suspected = False
        self._watch: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        """Return the engine's process id."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Tell whether requests can be handed to the engine."""
        opened = self._opened is not None and self._opened.done()
        return opened and not self._closing and self._fault is None and not self._child.gone

    async def open(self) -> EngineInfo:
        """Start the process and wait until the engine is open; there is no time limit.

        Raises the `ApiError` that the engine gave, or 500 `engine_crashed`. Cancelling the
        caller kills the process.
        """
        loop = asyncio.get_running_loop()
        self._opened = loop.create_future()
        try:
            await self._child.start()
            self._child.send(self._opening)
            return await self._opened
        except BaseException:
            self._closing = True
            # Nobody waits for it any more.
            self._opened.cancel()
            self._child.kill()
            await self._child.close()
            raise

    def submit(self, make: Callable[[int], Submission]) -> TokenStream:
        """Hand over the submission that `make` builds for a fresh request id."""
        request_id = next(self._ids)
        stream = TokenStream(request_id)
        if not self.alive:
            stream.fail(self._fault or engine_crashed())
            stream.end()
            return stream
        if not self._streams:
            self._last_sign = time.monotonic()
        self._streams[request_id] = stream
        self._child.send(Submit(make(request_id)))
        self._start_watch()
        return stream

    def cancel(self, stream: TokenStream) -> None:
        """Stop a request; its stream ends when the engine has stopped. Idempotent."""
        request_id = stream.request_id
        if request_id in self._streams and request_id not in self._cancelled:
            self._cancelled[request_id] = time.monotonic()
            self._child.send(Cancel(request_id))

    async def call(self, name: str, arguments: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - the function's own value
        """Call a function of the engine by name, between two steps.

        Raises `ApiError`: the function's own, or 503 when no answer comes within the hang
        timeout.
        """
        future = self._child.call(name, arguments)
        try:
            return await asyncio.wait_for(future, self._hang_timeout)
        except TimeoutError:
            message = f"The model's engine does not answer '{name}'; try again later."
            raise ApiError(503, message, code="engine_busy", retry_after=5) from None

    def kill(self) -> None:
        """End the process as if it had crashed: what runs fails, and it may be opened again."""
        self._child.kill()

    async def close(self) -> None:
        """End the process; requests that still run fail."""
        self._closing = True
        self._stop_watch()
        await self._child.close()

    def _reported(self, report: Report) -> None:
        self._last_sign = time.monotonic()
        if isinstance(report, Events):
            self._hand_over(report)
            return
        match report:
            case Ready(info):
                if self._opened is not None and not self._opened.done():
                    self._opened.set_result(info)
            case Lost(error):
                self._fault = error_from_wire(error)
            case Refused(request_id, error):
                if (stream := self._streams.get(request_id)) is not None:
                    self._forget(request_id)
                    stream.fail(error_from_wire(error))
                    stream.end()
            case _:
                pass

    def _hand_over(self, report: Events) -> None:
        for event in report.events:
            stream = self._streams.get(event.request_id)
            if stream is None:
                continue
            if event.finish is not None:
                self._forget(event.request_id)
            if not stream.put(event):
                self.cancel(stream)
            self._fed.append(stream)

    def _wake(self) -> None:
        """Let consumers go on, once for all that arrived together."""
        fed, self._fed = self._fed, []
        for stream in fed:
            stream.wake()

    def _forget(self, request_id: int) -> None:
        del self._streams[request_id]
        self._cancelled.pop(request_id, None)

    def _child_gone(self) -> None:
        self._stop_watch()
        opening = self._opened is not None and not self._opened.done()
        if opening and self._opened is not None:
            self._opened.set_exception(self._fault or _not_opened())
        error = _closed() if self._closing else engine_crashed()
        if not self._closing:
            logger.error(
                "the engine process %s ended (exit code %s)", self.pid, self._child.exit_code
            )
        self._fault = self._fault or error
        streams = list(self._streams.values())
        self._streams.clear()
        self._cancelled.clear()
        for stream in streams:
            stream.fail(error)
        if not self._closing and not opening:
            self._on_gone(error)
        # Last, so that slots are not given away before the engine counts as gone.
        for stream in streams:
            stream.end()

    def _start_watch(self) -> None:
        if self._watch is None:
            interval = self._hang_timeout / 4
            self._watch = asyncio.get_running_loop().call_later(interval, self._look)

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _look(self) -> None:
        self._watch = None
        if not self._streams:
            return
        now = time.monotonic()
        oldest = min((self._last_sign, *self._cancelled.values()))
        overdue = now - oldest > self._hang_timeout
        if overdue and self._suspected:
            logger.error("the engine process %s hangs and is killed", self.pid)
            self._child.kill()
            return
        # Looked at twice: after a pause of this process, its frames wait in the pipe.
        self._suspected = overdue
        self._start_watch()


def engine_crashed() -> ApiError:
    """Make the 500 of a request whose engine ended under it."""
    message = (
        "The model's engine stopped while it was answering; it is being restarted. Send the "
        "request again."
    )
    return ApiError(500, message, code="engine_crashed")


def _not_opened() -> ApiError:
    message = "The model's engine process ended while the model was loaded; see the server's log."
    return ApiError(500, message, code="engine_crashed")


def _closed() -> ApiError:
    message = "The model was unloaded while it was answering. Load it and send the request again."
    return ApiError(503, message, code="model_unloaded", retry_after=5)
