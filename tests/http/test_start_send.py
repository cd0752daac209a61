"""Middlewares that care for the start of a response only, beside ones that read bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from pegboard_contracts.sse import DONE, EventStream
from pegboard_contracts.start_send import AddedHeaders, offer_outer_send
from starlette.types import ASGIApp, Message, Receive, Scope, Send

EVENTS = [b"data: 1\n\n", b"data: 2\n\n"]


async def _events() -> AsyncGenerator[bytes, None]:
    for event in EVENTS:
        yield event


async def _endpoint(scope: Scope, receive: Receive, send: Send) -> None:
    stream = EventStream(_events(), on_error=lambda _: [], keepalive_interval=0)
    await stream(scope, receive, send)


def _adding(app: ASGIApp, name: bytes) -> ASGIApp:
    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        added = AddedHeaders(send, (name, b"yes"))
        offer_outer_send(scope, added)
        await app(scope, receive, added)

    return run


def _shouting(app: ASGIApp) -> ASGIApp:
    """Change bodies, as a middleware from elsewhere may, with a wrapper like everyone's."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        async def shout(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": message["body"].upper()}
            await send(message)

        await app(scope, receive, shout)

    return run


def _sent(app: ASGIApp) -> list[Message]:
    sent: list[Message] = []

    async def go() -> None:
        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        await app({"type": "http"}, receive, send)

    asyncio.run(go())
    return sent


def test_a_stream_goes_past_wrappers_that_only_look_at_the_start() -> None:
    start, *bodies = _sent(_adding(_adding(_endpoint, b"inner"), b"outer"))
    assert start["headers"][-2:] == [(b"inner", b"yes"), (b"outer", b"yes")]
    assert [message["body"] for message in bodies] == [*EVENTS, DONE]


def test_a_middleware_between_them_that_reads_bodies_sees_them_all() -> None:
    start, *bodies = _sent(_adding(_shouting(_adding(_endpoint, b"inner")), b"outer"))
    assert start["headers"][-2:] == [(b"inner", b"yes"), (b"outer", b"yes")]
    assert [message["body"] for message in bodies] == [one.upper() for one in [*EVENTS, DONE]]
