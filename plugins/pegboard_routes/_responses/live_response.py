"""A response that is being made: one state machine, whoever waits for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import msgspec
from pegboard_contracts.errors import ApiError, server_error
from pegboard_contracts.events import Accepted, Finished, GenerationEvent
from pegboard_contracts.sse import sse_event

from pegboard_routes._responses.event_ladder import EventLadder, WireEvent
from pegboard_routes._responses.response_object import ResponseObject, ResponseStatus, ResponseUsage

logger = logging.getLogger(__name__)

Events = AsyncGenerator[GenerationEvent, None]
Keep = Callable[["LiveResponse", ResponseObject, bytes], Awaitable[ResponseObject]]
"""Store a final object with the framed events of its stream; returns what is told."""

_PROMPT_FAULTS = {
    "chat_template_error",
    "chat_template_missing",
    "template_timeout",
    "context_length_exceeded",
    "invalid_tool_arguments",
}


def is_prompt_fault(error: ApiError) -> bool:
    """Tell whether rendering, counting or compacting the prompt refused a request."""
    return error.status == 400 and error.code in _PROMPT_FAULTS


class LiveResponse:
    """Read a generation to its end, whatever ends it, and keep what came of it.

    The first terminal transition wins: what is settled stays settled, however a finish, a
    cancel and a lost client race. Nobody is told the end before it is stored. Runs on the
    event loop.
    """

    def __init__(
        self,
        ladder: EventLadder,
        owner: str,
        keep: Keep,
        *,
        background: bool = False,
        streamed: bool = False,
    ) -> None:
        """Prepare; nothing runs before `start`."""
        self.owner = owner
        self.background = background
        self.streamed = streamed
        self.error: ApiError | None = None
        self.by_itself = False
        self._final: ResponseObject | None = None
        self._ladder = ladder
        self._keep = keep
        self._events: list[WireEvent] = []
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._settled: Finished | ResponseStatus | ApiError | None = None
        self._reading: asyncio.Task[None] | None = None
        self._driver: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """Return the response's id."""
        return self._ladder.draft.id

    @property
    def snapshot(self) -> ResponseObject:
        """Return the object as it may be shown now: no partial output before the end."""
        if self._final is not None:
            return self._final
        draft = self._ladder.draft
        return msgspec.structs.replace(
            draft,
            status="queued" if draft.status == "queued" else "in_progress",
            completed_at=None,
            output=[],
            error=None,
            incomplete_details=None,
            usage=ResponseUsage() if self.background else None,
        )

    @property
    def settled(self) -> bool:
        """Tell whether it is decided how the response ends."""
        return self._settled is not None

    def start(self, events: Events) -> None:
        """Begin to read; `events` is closed at the end, which stops its generation."""
        if self.streamed:
            self._publish()
        self._reading = asyncio.create_task(self._read(events))
        self._driver = asyncio.create_task(self._drive(self._reading, events))
        if self._settled is not None:
            self._reading.cancel()

    def refuse(self, error: ApiError) -> None:
        """Decide, before the start, that the response fails."""
        self._settled = error

    async def end(self) -> ResponseObject:
        """Wait for the final object, stored already."""
        await self._ended.wait()
        return self.snapshot

    async def stop(self, status: ResponseStatus) -> ResponseObject:
        """End now as `cancelled` or `incomplete`, unless the end is decided; wait for it."""
        self._settle(status)
        return await self.end()

    async def fail(self, error: ApiError) -> None:
        """End now as failed, unless the end is decided; wait for it when it has begun."""
        self._settle(error)
        if self._driver is not None:
            await self.end()

    async def follow(self, start: int = 0) -> AsyncGenerator[WireEvent, None]:
        """Yield the events from number `start` on, as they come, to the terminal one."""
        position = start
        while True:
            while position < len(self._events):
                yield self._events[position]
                position += 1
            if self._ended.is_set():
                return
            await self._news.wait()

    def _settle(self, outcome: Finished | ResponseStatus | ApiError) -> None:
        if self._settled is not None:
            return
        self._settled = outcome
        if self._reading is not None and not isinstance(outcome, Finished):
            self._reading.cancel()

    async def _read(self, events: Events) -> None:
        try:
            async with aclosing(events):
                async for event in events:
                    self._take(event)
        except ApiError as error:
            self._settle(error)
        except Exception:
            logger.exception("a response failed")
            self._settle(server_error())

    def _take(self, event: GenerationEvent) -> None:
        if self._settled is not None:
            return
        if isinstance(event, Accepted):
            self._ladder.accept(event)
            return
        if self._ladder.draft.status == "queued":
            self._ladder.start()
        self._ladder.take(event)
        if isinstance(event, Finished):
            self._settle(event)
        else:
            self._publish()

    async def _drive(self, reading: asyncio.Task[None], events: Events) -> None:
        try:
            await asyncio.wait((reading,))
            await events.aclose()
            await self._finish()
        finally:
            self._ended.set()
            self._news.set()

    async def _finish(self) -> None:
        self._conclude()
        terminal = self._ladder.conclude()
        self._publish()
        framed = b""
        if self.streamed:
            told = (*self._events, terminal)
            framed = b"".join(sse_event(event.name, event.payload) for event in told)
        final = self._ladder.draft
        try:
            final = await self._keep(self, final, framed)
        except Exception:
            logger.exception("a response is not kept")
        self._final = final
        self._events.append(terminal)

    def _conclude(self) -> None:
        ladder, outcome, now = self._ladder, self._settled, int(time.time())
        if isinstance(outcome, Finished):
            self.by_itself = True
            ladder.finish(now)
        elif isinstance(outcome, str):
            ladder.stop(outcome, now)
        else:
            self.error = outcome or server_error("The answer ended without an end.")
            ladder.fail(self.error, self._code_of(self.error), now)

    def _code_of(self, error: ApiError) -> str:
        if not self.background:
            return "server_error"
        if is_prompt_fault(error) or error.code == "unsupported_media":
            return "invalid_prompt"
        return "server_overloaded" if error.code == "server_overloaded" else "server_error"

    def _publish(self) -> None:
        events = self._ladder.take_events()
        if not self.streamed or not events:
            return
        self._events += events
        news, self._news = self._news, asyncio.Event()
        news.set()
