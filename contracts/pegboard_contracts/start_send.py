"""Wrappers of ASGI's `send` that act on the start of a response and on nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Message, Scope, Send

_OUTER_SEND = "pegboard.outer_send"
_STARTS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})


class StartSend:
    """Be a `send` that looks at the start of a response only.

    A middleware that wraps `send` with a subclass costs nothing for each part of a stream:
    `body_send` goes past it once the response has begun.
    """

    def __init__(self, behind: Send) -> None:
        """Wrap `behind`."""
        self.behind = behind

    async def __call__(self, message: Message) -> None:
        """Let the first message through `begin`, and every other as it is."""
        if message["type"] in _STARTS:
            message = self.begin(message)
        await self.behind(message)

    def begin(self, start: Message) -> Message:
        """Take note of the start of the response, and return what is sent for it."""
        return start


class AddedHeaders(StartSend):
    """Add headers to a response."""

    def __init__(self, behind: Send, *headers: tuple[bytes, bytes]) -> None:
        """Wrap `behind`; names are in lower case."""
        super().__init__(behind)
        self._headers = headers

    def begin(self, start: Message) -> Message:
        """Return the start with the headers behind its own."""
        return {**start, "headers": [*start.get("headers", ()), *self._headers]}


def offer_outer_send(scope: Scope, send: Send) -> None:
    """Tell what is inside, for `body_send`, which `send` came from outside.

    For a layer whose inner parts wrap `send` without looking at bodies.
    """
    scope[_OUTER_SEND] = send


def body_send(scope: Scope, send: Send) -> Send:
    """Return what sends the parts of a response's body, for one that has begun with `send`."""
    outer: Send = scope.get(_OUTER_SEND, send)
    while isinstance(outer, StartSend):
        outer = outer.behind
    return outer
