"""Server-sent events as plain ASGI: the one streaming response of every route."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pegboard_contracts.errors import ApiError, server_error
from pegboard_contracts.start_send import body_send

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

logger = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
_LAST_WORD_SECONDS = 1.0
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def sse_data(payload: bytes) -> bytes:
    """Frame one JSON payload as an event without a name."""
    return b"data: " + payload + b"\n\n"


def sse_event(name: str, payload: bytes) -> bytes:
    """Frame one JSON payload as a named event."""
    return b"event: " + name.encode() + b"\ndata: " + payload + b"\n\n"


class EventStream:
    """Send framed events to one client; a route answers with `as_response()`.

    Guarantees: one write per event, LF line ends, a comment every `keepalive_interval`
    seconds of silence, `on_error`'s events for a fault in mid-stream and for a server that
    stops, `DONE` at the end, and that `events` is closed (which stops its generation) when
    the client is gone.
    The caller has taken the first semantic event already, so that everything knowable
    before it was an HTTP error. Source: decisions 5, 15, 30.
    """

    def __init__(  # noqa: PLR0913 - the stream and how it is sent, each used as it is
        self,
        events: AsyncGenerator[bytes, None],
        *,
        on_error: Callable[[ApiError], Iterable[bytes]],
        keepalive_interval: float,
        done: bytes = DONE,
        sources: Sequence[AsyncGenerator[Any, None]] = (),
        patience: float | None = None,
    ) -> None:
        """Keep the parts; nothing is sent before the server calls the instance.

        A `keepalive_interval` of 0 or less sends no comments. `sources` are what `events`
        reads from; they are closed even when `events` was never begun. A client that takes
        nothing for `patience` seconds is cut off without the end; `None` waits for ever.
        """
        self._events = events
        self._on_error = on_error
        self._interval = keepalive_interval
        self._done = done
        self._sources = sources
        self._patience = patience
        self._last_write = 0.0
        self._writing_since: float | None = None
        self._open = False

    def as_response(self) -> Response:
        """Wrap this stream in what FastAPI takes for a response."""
        return _response_class()(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the events end, the client leaves, or the server stops."""
        loop = asyncio.get_running_loop()
        self._last_write = loop.time()
        pump = loop.create_task(self._pump(scope, send))
        watches = [loop.create_task(_disconnected(receive)), loop.create_task(self._watch_client())]
        beat = loop.create_task(self._keep_alive(send))
        try:
            await asyncio.wait((pump, beat, *watches), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._break_off(send, pump, beat)
            raise
        finally:
            for task in (*watches, beat, pump):
                task.cancel()
            await asyncio.gather(*watches, beat, pump, return_exceptions=True)
            for generator in (self._events, *self._sources):
                await generator.aclose()
        for task in (pump, beat):
            if not task.cancelled() and (fault := task.exception()) is not None:
                raise fault

    async def _pump(self, scope: Scope, send: Send) -> None:
        with contextlib.suppress(OSError):
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            self._open = True
            # As few calls for each event as can be: they are most of what a token costs here.
            send_body = body_send(scope, send)
            fault = await self._send_events(send_body)
            if fault is not None:
                for event in self._on_error(fault):
                    await self._write(send_body, event)
            await self._finish(send_body)

    async def _send_events(self, send: Send) -> ApiError | None:
        """Send all events and return what went wrong with them."""
        clock, events = asyncio.get_running_loop().time, self._events
        while True:
            try:
                event = await anext(events)
            except StopAsyncIteration:
                return None
            except ApiError as error:
                return error
            except Exception:
                logger.exception("a stream failed")
                return server_error()
            self._last_write = self._writing_since = clock()
            await send({"type": "http.response.body", "body": event, "more_body": True})
            self._writing_since = None

    async def _write(self, send: Send, event: bytes) -> None:
        self._last_write = self._writing_since = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": event, "more_body": True})
        self._writing_since = None

    async def _watch_client(self) -> None:
        """Return when the client has taken nothing for as long as it may."""
        patience = self._patience
        if patience is None:
            await asyncio.Event().wait()
            return
        clock = asyncio.get_running_loop().time
        rest = patience
        while rest > 0:
            await asyncio.sleep(rest)
            since = self._writing_since
            rest = patience if since is None else since + patience - clock()

    async def _break_off(self, send: Send, *writers: asyncio.Task[None]) -> None:
        """End the stream well although the server stops, unless its client reads nothing."""
        for task in writers:
            task.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        if not self._open:
            return
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LAST_WORD_SECONDS):
                for event in self._on_error(_stopping()):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                await self._finish(send)

    async def _finish(self, send: Send) -> None:
        self._open = False
        await send({"type": "http.response.body", "body": self._done, "more_body": False})

    async def _keep_alive(self, send: Send) -> None:
        if self._interval <= 0:
            await asyncio.Event().wait()
        clock = asyncio.get_running_loop().time
        with contextlib.suppress(OSError):
            while True:
                rest = self._last_write + self._interval - clock()
                if self._writing_since is not None:
                    # The client takes nothing; a comment more would not help it.
                    rest = self._interval
                if rest > 0:
                    await asyncio.sleep(rest)
                    continue
                await self._write(send, KEEP_ALIVE)


def _stopping() -> ApiError:
    return ApiError(503, "The server is stopping; ask again later.", code="server_stopping")


@cache
def _response_class() -> Callable[[EventStream], Response]:
    from starlette.responses import Response as StarletteResponse  # noqa: PLC0415 - heavy

    class StreamedResponse(StarletteResponse):
        def __init__(self, stream: EventStream) -> None:
            super().__init__()
            self._stream = stream

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await self._stream(scope, receive, send)

    return StreamedResponse


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
