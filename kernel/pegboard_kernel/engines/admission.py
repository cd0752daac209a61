"""Admission: as many requests as the engine is worth, a bounded queue, first come first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from pegboard_contracts.engine import Submission
from pegboard_contracts.errors import ApiError

from pegboard_kernel.engines.engine_client import EngineClient
from pegboard_kernel.engines.token_stream import TokenStream

MakeSubmission = Callable[[int], Submission]
_RETRY_AFTER = 2.0


class Ticket:
    """Be one request's place: in the queue, then on the engine, until `leave`."""

    def __init__(self, admission: Admission, make: MakeSubmission) -> None:
        """Wait for a place."""
        self.stream: TokenStream | None = None
        self._admission = admission
        self._make = make
        self._started: asyncio.Future[TokenStream] = asyncio.get_running_loop().create_future()
        self._held = False

    async def started(self) -> TokenStream:
        """Wait for the place and return the stream of the running request.

        Raises what `fail` was given while the request waited.
        """
        return await self._started

    def start(self, engine: EngineClient) -> TokenStream:
        """Hand the request to the engine; its place is free again when the engine is done."""
        stream = engine.submit(self._make)
        self.stream = stream
        if not self._started.done():
            self._started.set_result(stream)
        stream.when_ended(self._stream_ended)
        return stream

    async def resubmit(self, make: MakeSubmission) -> TokenStream:
        """Stop the running request and run another submission in its place.

        Raises `ApiError` when the engine is lost meanwhile.
        """
        old = self.stream
        if old is None:
            raise RuntimeError("nothing runs in this place yet")
        if old.ended:
            self._admission.take_back()
        else:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._held = True
            self._admission.cancel(old)
            old.when_ended(lambda: None if ended.done() else ended.set_result(None))
            await ended
            self._held = False
        self._make = make
        return self._admission.restart(self)

    def fail(self, error: ApiError) -> None:
        """Make the request fail where it is: in the queue or running."""
        if self.stream is not None:
            self._admission.cancel(self.stream)
            self.stream.fail(error)
        elif not self._started.done():
            self._started.set_exception(error)

    def leave(self) -> None:
        """Give up the place: leave the queue, or stop the engine's work. Idempotent."""
        if self.stream is None:
            self._admission.forget(self)
            if not self._started.cancel() and not self._started.cancelled():
                # Nobody will ask any more.
                self._started.exception()
        elif self._held:
            self._held = False
            self._stream_ended()
        else:
            self._admission.cancel(self.stream)

    def _stream_ended(self) -> None:
        if not self._held and self.stream is not None and self.stream.ended:
            self._admission.release()


class Admission:
    """Give out the places of one engine.

    While the engine is away (`suspend`), the queue waits and nobody is started.
    """

    def __init__(self, max_queue: int) -> None:
        """Start suspended."""
        self._max_queue = max_queue
        self._engine: EngineClient | None = None
        self._places = 0
        self._running = 0
        self._queue: deque[Ticket] = deque()

    @property
    def waiting(self) -> int:
        """Count the requests in the queue."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Count the requests on the engine."""
        return self._running

    def resume(self, engine: EngineClient, places: int) -> None:
        """Start requests on `engine`, as many as it has places."""
        self._engine = engine
        self._places = places
        self._fill()

    def suspend(self) -> None:
        """Start nothing until `resume`."""
        self._engine = None

    def check_room(self, preparing: int = 0) -> None:
        """Raise 503 `server_overloaded` when a further request would find no place to wait.

        `preparing` counts the requests that are about to enter.
        """
        free = max(0, self._places - self._running)
        if len(self._queue) + preparing >= self._max_queue + free:
            message = (
                f"{len(self._queue) + preparing} requests are waiting for this model, as many as "
                "may. Try again later."
            )
            raise ApiError(503, message, code="server_overloaded", retry_after=_RETRY_AFTER)

    def enter(self, make: MakeSubmission) -> Ticket:
        """Start the submission that `make` builds, or let it wait; never blocks.

        Raises `ApiError` 503 `server_overloaded` when the queue is full.
        """
        self.check_room()
        ticket = Ticket(self, make)
        self._queue.append(ticket)
        self._fill()
        return ticket

    def forget(self, ticket: Ticket) -> None:
        """Take a waiting ticket out of the queue."""
        if ticket in self._queue:
            self._queue.remove(ticket)

    def cancel(self, stream: TokenStream) -> None:
        """Stop a running request."""
        if self._engine is not None:
            self._engine.cancel(stream)

    def restart(self, ticket: Ticket) -> TokenStream:
        """Start a ticket again that holds a place; raises 500 when the engine is away."""
        if self._engine is None:
            self.release()
            message = "The model's engine stopped while it was answering; send the request again."
            raise ApiError(500, message, code="engine_crashed")
        return ticket.start(self._engine)

    def fail_all(self, error: ApiError) -> None:
        """Make every waiting request fail."""
        while self._queue:
            self._queue.popleft().fail(error)

    def take_back(self) -> None:
        """Give a place to one that had it a moment ago, even when all are taken by now."""
        self._running += 1

    def release(self) -> None:
        """Take a place back and give it to the next in the queue."""
        self._running -= 1
        self._fill()

    def _fill(self) -> None:
        while self._queue and self._engine is not None and self._running < self._places:
            self._running += 1
            self._queue.popleft().start(self._engine)
