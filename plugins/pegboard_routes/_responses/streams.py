"""Streams of events: of a response that runs, and of one that is stored."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.sse import EventStream, sse_event

from pegboard_routes._responses.desk import Desk
from pegboard_routes._responses.live_response import LiveResponse
from pegboard_routes._responses.pages import whole_number

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_TRUE = {"true", "1"}
_FALSE = {"", "false", "0"}


async def streamed(live: LiveResponse, keepalive_interval: float) -> Response:
    """Stream a foreground response; when its client leaves, it ends as incomplete."""
    held = _held(live)
    await anext(held)
    return _event_stream(_framed(live, 0), keepalive_interval, held)


async def replayed(
    desk: Desk, owner: str, response_id: str, start: int, keepalive_interval: float
) -> Response:
    """Stream the events from number `start` on, of a finished or running response.

    Raises `ApiError` 404 for an unknown one, 400 for one that was not streamed.
    """
    desk.shelf.require()
    running = desk.live.find(owner, response_id)
    if running is not None and running.streamed and running.snapshot.store:
        return _event_stream(_framed(running, start), keepalive_interval)
    stored = None if running is not None else await desk.shelf.get(owner, response_id)
    if stored is None or not stored.events:
        message = "This response was not streamed, so it has no events; get it without 'stream'."
        raise invalid_request(message, param="stream", code="response_not_streamed")
    return _event_stream(_stored(stored.events, start), keepalive_interval)


def first_event(request: Request) -> int | None:
    """Return the number of the first event a GET wants; `None` when it wants the object.

    Raises `ApiError` 400 for values that mean nothing.
    """
    wanted = request.query_params.get("stream", "").lower()
    if wanted not in _TRUE | _FALSE:
        raise invalid_request("'stream' is true or false.", param="stream")
    after = whole_number(request, "starting_after", -1)
    if "starting_after" in request.query_params and after < 0:
        message = "'starting_after' is the sequence_number of an event, 0 or more."
        raise invalid_request(message, param="starting_after")
    return after + 1 if wanted in _TRUE else None


def _event_stream(
    events: AsyncGenerator[bytes, None],
    keepalive_interval: float,
    *sources: AsyncGenerator[None, None],
) -> Response:
    return EventStream(
        events,
        on_error=_untold,
        keepalive_interval=keepalive_interval,
        sources=sources,
    ).as_response()


def _untold(error: ApiError) -> tuple[bytes, ...]:
    """Faults are events of the response itself; here nothing can fail."""
    del error
    return ()


async def _framed(live: LiveResponse, start: int) -> AsyncGenerator[bytes, None]:
    async for event in live.follow(start):
        yield sse_event(event.name, event.payload)


async def _stored(events: bytes, start: int) -> AsyncGenerator[bytes, None]:
    for frame in events.split(b"\n\n")[start:-1]:
        yield frame + b"\n\n"


async def _held(live: LiveResponse) -> AsyncGenerator[None, None]:
    """Hold a response as long as its one client is there."""
    try:
        yield
    finally:
        await live.stop("incomplete")
