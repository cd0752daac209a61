"""Server-sent events as plain ASGI: the one streaming response of every route."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pegboard_contracts.errors import ApiError, server_error

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
        self._open = False

    def as_response(self) -> Response:
        """Wrap this stream in what FastAPI takes for a response."""
        return _response_class()(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the events end, the client leaves, or the server stops."""
        del scope
        loop = asyncio.get_running_loop()
        self._last_write = loop.time()
        pump = loop.create_task(self._pump(send))
        watch = loop.create_task(_disconnected(receive))
        beat = loop.create_task(self._keep_alive(send))
        try:
            await asyncio.wait((pump, watch, beat), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._break_off(send, pump, beat)
            raise
        finally:
            for task in (watch, beat, pump):
                task.cancel()
            await asyncio.gather(watch, beat, pump, return_exceptions=True)
            for generator in (self._events, *self._sources):
                await generator.aclose()
        for task in (pump, beat):
            if not task.cancelled() and (fault := task.exception()) is not None:
                raise fault

    async def _pump(self, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        with contextlib.suppress(OSError):
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            self._open = True
            async for event in self._with_faults_told():
                self._last_write = clock()
                await self._write(send, event)
            await self._finish(send)

    async def _write(self, send: Send, event: bytes) -> None:
        """Send one event. Raises `TimeoutError`, an `OSError`, when the client takes nothing."""
        async with asyncio.timeout(self._patience):
            await send({"type": "http.response.body", "body": event, "more_body": True})

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

    async def _with_faults_told(self) -> AsyncGenerator[bytes, None]:
        fault: ApiError | None = None
        try:
            async for event in self._events:
                yield event
        except ApiError as error:
            fault = error
        except Exception:
            logger.exception("a stream failed")
            fault = server_error()
        if fault is not None:
            for event in self._on_error(fault):
                yield event

    async def _keep_alive(self, send: Send) -> None:
        if self._interval <= 0:
            await asyncio.Event().wait()
        clock = asyncio.get_running_loop().time
        with contextlib.suppress(OSError):
            while True:
                rest = self._last_write + self._interval - clock()
                if rest > 0:
                    await asyncio.sleep(rest)
                    continue
                self._last_write = clock()
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
