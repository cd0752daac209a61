"""The streaming response: one write an event, comments in silence, and no lost generation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from pegboard_contracts.errors import ApiError
from pegboard_contracts.sse import DONE, KEEP_ALIVE, EventStream, sse_data
from starlette.types import Message

Send = Callable[[Message], Awaitable[None]]


class Client:
    """Take what a stream sends; leave, or break, after so many events."""

    def __init__(self, *, leave_after: int | None = None, break_after: int | None = None) -> None:
        self.sent: list[Message] = []
        self.gone = asyncio.Event()
        self.news = asyncio.Condition()
        self.leave_after = leave_after
        self.break_after = break_after
        if leave_after == 0:
            self.gone.set()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.break_after is not None and len(self.sent) > self.break_after:
            raise OSError("broken pipe")
        self.sent.append(message)
        if self.leave_after is not None and len(self.sent) > self.leave_after:
            self.gone.set()
        async with self.news:
            self.news.notify_all()

    async def until(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(10), self.news:
            await self.news.wait_for(seen)

    @property
    def bodies(self) -> list[bytes]:
        return [m["body"] for m in self.sent if m["type"] == "http.response.body"]


class Source:
    """Yield frames, and know whether it was closed."""

    def __init__(self, *frames: bytes | Exception | asyncio.Event) -> None:
        self.frames = frames
        self.closed = False
        self.begun = False

    async def events(self) -> AsyncGenerator[bytes, None]:
        self.begun = True
        try:
            for frame in self.frames:
                if isinstance(frame, Exception):
                    raise frame
                if isinstance(frame, asyncio.Event):
                    await frame.wait()
                else:
                    yield frame
        finally:
            self.closed = True


def told(error: ApiError) -> list[bytes]:
    return [sse_data(error.envelope())]


async def stream(
    client: Client,
    events: AsyncGenerator[bytes, None],
    interval: float = 30,
    sources: Sequence[AsyncGenerator[Any, None]] = (),
) -> None:
    response = EventStream(events, on_error=told, keepalive_interval=interval, sources=sources)
    await response({"type": "http"}, client.receive, client.send)


def test_each_event_is_one_write_and_the_end_is_told_once() -> None:
    async def go() -> Client:
        client = Client()
        await stream(client, Source(b"data: 1\n\n", b"data: 2\n\n").events())
        return client

    client = asyncio.run(go())
    assert client.bodies == [b"data: 1\n\n", b"data: 2\n\n", DONE]
    assert [m.get("more_body") for m in client.sent[1:]] == [True, True, False]
    assert (b"content-type", b"text/event-stream; charset=utf-8") in client.sent[0]["headers"]


def test_c33_silence_is_filled_with_comments_between_events() -> None:
    async def go() -> list[bytes]:
        client, silence = Client(), asyncio.Event()
        source = Source(b"data: 1\n\n", silence, b"data: 2\n\n")
        running = asyncio.create_task(stream(client, source.events(), 0.01))
        await client.until(lambda: client.bodies.count(KEEP_ALIVE) == 3)
        silence.set()
        await running
        return client.bodies

    bodies = asyncio.run(go())
    assert [b for b in bodies if b != KEEP_ALIVE] == [b"data: 1\n\n", b"data: 2\n\n", DONE]
    assert bodies[-1] == DONE


@pytest.mark.parametrize("interval", [0, -1])
def test_an_interval_of_nothing_sends_no_comments(interval: float) -> None:
    async def go() -> list[bytes]:
        client, silence = Client(), asyncio.Event()
        running = asyncio.create_task(stream(client, Source(silence).events(), interval))
        for _ in range(50):
            await asyncio.sleep(0)
        silence.set()
        await running
        return client.bodies

    assert asyncio.run(go()) == [DONE]


@pytest.mark.parametrize("fault", [ApiError(500, "known"), ValueError("x"), OSError("ours")])
def test_a_fault_is_told_and_the_stream_ends_well(fault: Exception) -> None:
    async def go() -> list[bytes]:
        client = Client()
        await stream(client, Source(b"data: 1\n\n", fault).events())
        return client.bodies

    bodies = asyncio.run(go())
    assert bodies[0] == b"data: 1\n\n"
    assert bodies[1].startswith(b'data: {"error":')
    assert bodies[2:] == [DONE]


@pytest.mark.parametrize("point", [0, 1, 2])
@pytest.mark.parametrize("way", ["leave_after", "break_after"])
def test_a_client_that_leaves_at_any_point_closes_the_events(point: int, way: str) -> None:
    async def go() -> Source:
        source = Source(*[b"data: x\n\n"] * 5, *([asyncio.Event()] if way == "leave_after" else []))
        await asyncio.wait_for(stream(Client(**{way: point}), source.events()), 10)
        return source

    source = asyncio.run(go())
    assert source.closed or not source.begun


def test_sources_are_closed_even_when_no_event_was_asked_for() -> None:
    async def go() -> bool:
        source = Source(b"accepted", b"never")
        inner = source.events()
        assert await anext(inner) == b"accepted"

        async def outer() -> AsyncGenerator[bytes, None]:
            async for event in inner:
                yield event

        async def refuse(message: Message) -> None:
            raise OSError(message["type"])

        client = Client()
        client.send = refuse  # type: ignore[method-assign]
        await stream(client, outer(), sources=[inner])
        return source.closed

    assert asyncio.run(go())


def test_c38_a_server_that_stops_ends_the_stream_well() -> None:
    async def go() -> tuple[bool, list[bytes]]:
        source, client = Source(b"data: 1\n\n", asyncio.Event()), Client()
        running = asyncio.create_task(stream(client, source.events()))
        await client.until(lambda: bool(client.bodies))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return source.closed, client.bodies

    closed, bodies = asyncio.run(go())
    assert closed
    assert bodies[0] == b"data: 1\n\n"
    assert b'"server_stopping"' in bodies[1]
    assert bodies[2:] == [DONE]


class StuckClient(Client):
    """Take the headers, then nothing, like a reader whose window is full."""

    async def send(self, message: Message) -> None:
        if self.sent:
            await asyncio.Event().wait()
        await super().send(message)


@pytest.mark.parametrize("silent", [True, False], ids=["in silence", "with an event"])
def test_a_client_that_takes_nothing_is_cut_off(silent: bool) -> None:
    async def run() -> tuple[Client, Source]:
        client = StuckClient()
        source = Source(asyncio.Event()) if silent else Source(sse_data(b"1"))
        one = EventStream(
            source.events(), on_error=told, keepalive_interval=0.01, done=b"", patience=0.05
        )
        async with asyncio.timeout(10):
            await one({"type": "http"}, client.receive, client.send)
        return client, source

    client, source = asyncio.run(run())
    assert source.closed
    assert not client.bodies
