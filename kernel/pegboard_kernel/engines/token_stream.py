"""The bounded buffer between an engine's reader and one request's consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pegboard_contracts.engine import TokenEvent
from pegboard_contracts.errors import ApiError

STREAM_LIMIT = 16_384
"""Events that may wait for one consumer: more than a full pipe can hold at once."""


class TokenStream:
    """Hold one request's events until they are taken, all that are there together.

    One producer, one consumer, one event loop, no task and no timer per event.
    """

    def __init__(self, request_id: int, *, limit: int = STREAM_LIMIT) -> None:
        """Start empty."""
        self.request_id = request_id
        self.ended = False
        self._limit = limit
        self._events: list[TokenEvent] = []
        self._error: ApiError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._on_end: list[Callable[[], None]] = []

    def put(self, event: TokenEvent) -> bool:
        """Take an event; false when the consumer is too far behind and the stream failed."""
        if self._error is None:
            self._events.append(event)
            if len(self._events) > self._limit:
                self._overflow()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
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
            self._wake()

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
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        events, self._events = self._events, []
        return events

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
