"""Every answer carries the id under which the log tells its story."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pegboard_contracts.http import header_values, request_id
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.services import Services
from pegboard_contracts.start_send import AddedHeaders

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_SAFE = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class RequestId(Plugin):
    """Put `X-Request-ID` on every response, errors and streams included."""

    summary = "X-Request-ID on every response; safe ids of clients are kept"

    @hookimpl
    def pegboard_provide_middlewares(
        self, services: Services
    ) -> Sequence[Callable[[ASGIApp], ASGIApp]]:
        """Provide the middleware."""
        del services
        return [RequestIdMiddleware]


class RequestIdMiddleware:
    """Keep the client's id where it cannot harm a log line, else make one."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request under its id."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        given = header_values(scope, b"x-request-id")
        kept = len(given) == 1 and _SAFE.fullmatch(given[0])
        name = given[0] if kept else b"req-" + secrets.token_hex(12).encode()
        request_id.set(name.decode())
        named = AddedHeaders(send, (b"x-request-id", name))
        await self._app(scope, receive, named)


plugin = RequestId
