"""The bounded buffer between an engine's reader and one request's consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context

from pegboard_contracts.engine import TokenEvent
from pegboard_contracts.errors import ApiError

STREAM_LIMIT = 16_384
"""Events that may wait for one consumer: more than a full pipe can hold at once."""


class TokenStream:
    """Hold one request's events until they are taken, all that are there together.

    One producer, one consumer, one event loop; for an event no task, no timer and no turn of
    the loop: the consumer goes on inside `wake`.
    """

    def __init__(self, request_id: int, *, limit: int = STREAM_LIMIT) -> None:
        """Start empty, for a consumer on the running loop."""
        self.request_id = request_id
        self.ended = False
        self._limit = limit
        self._events: list[TokenEvent] = []
        self._error: ApiError | None = None
        self._waiter: _Waiter | None = None
        # Asking for it is a system call each time.
        self._loop = asyncio.get_running_loop()
        self._on_end: list[Callable[[], None]] = []

    def put(self, event: TokenEvent) -> bool:
        """Take an event; false when the consumer is too far behind and the stream failed.

        The consumer hears of it in the next `wake`.
        """
        if self._error is None:
            self._events.append(event)
            if len(self._events) > self._limit:
                self._overflow()
        if event.finish is not None:
            self.end()
        return self._error is None

    def _overflow(self) -> None:
        self._events.clear()
        message = "The client reads more slowly than the model writes, and the buffer is full."
        self._error = ApiError(503, message, code="stream_too_slow", retry_after=1)

    def fail(self, error: ApiError) -> None:
        """Let the consumer get `error` behind what is there already. The first error stays."""
        if self._error is None:
            self._error = error
            if self._waiter is not None:
                self._waiter.wake_soon()

    def end(self) -> None:
        """Take note that the engine is done with this request."""
        if not self.ended:
            self.ended = True
            for callback in self._on_end:
                callback()
            self._on_end.clear()

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the engine is done with this request, or now if it is."""
        if self.ended:
            callback()
        else:
            self._on_end.append(callback)

    async def batch(self) -> list[TokenEvent]:
        """Return every event that waits, at least one.

        Raises `ApiError` when the stream failed and all that came before was taken.
        """
        while not self._events:
            if self._error is not None:
                raise self._error
            self._waiter = _Waiter(loop=self._loop)
            await self._waiter
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        """Let a waiting consumer take what is there, before this returns.

        For callbacks of the loop; inside a task, the consumer goes on a turn later.
        """
        waiter = self._waiter
        if waiter is None or not (self._events or self._error):
            return
        if asyncio.current_task(self._loop) is None:
            waiter.wake()
        else:
            waiter.wake_soon()


class _Waiter(asyncio.Future[None]):
    """Be awaited by one task, which can be let go on at once.

    A plain future wakes a task through the queue of the loop. That turn of the loop, with
    its system call, is a good part of what a token costs while the engine keeps all cores
    and caches busy.
    """

    _resume: Callable[[asyncio.Future[None]], object] | None = None
    _context: Context | None = None

    def add_done_callback(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - only a task calls it
        self, fn: Callable[[asyncio.Future[None]], object], /, *, context: Context | None = None
    ) -> None:
        """Keep how the task that awaits this goes on."""
        self._resume, self._context = fn, context

    def wake(self) -> None:
        """Let the task go on before this returns."""
        if not self.done():
            self.set_result(None)
            if self._resume is not None and self._context is not None:
                self._context.run(self._resume, self)

    def wake_soon(self) -> None:
        """Let the task go on in the next turn of the loop."""
        if not self.done():
            self.set_result(None)
            self._resume_soon()

    def cancel(self, msg: object = None) -> bool:
        """Cancel the wait of the task."""
        if not super().cancel(msg):
            return False
        self._resume_soon()
        return True

    def _resume_soon(self) -> None:
        if self._resume is not None:
            self.get_loop().call_soon(self._resume, self, context=self._context)
