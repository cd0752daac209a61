"""No request body may be larger than a server is willing to hold in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.http import header_values, send_error
from pegboard_contracts.plugin import Plugin, PluginSettings, hookimpl
from pegboard_contracts.services import Services
from pydantic import Field

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MEBIBYTE = 1024 * 1024
_DRAIN_SECONDS = 2.0
_CLOSE = (b"connection", b"close")


class Settings(PluginSettings):
    """Say how large a body may be."""

    max_request_body_mb: int = Field(
        default=40,
        ge=1,
        description="Largest request body in MiB; larger ones are refused with 413.",
        json_schema_extra={
            "flag": "--max-request-body-mb",
            "env": ["OV_LLM_MAX_REQUEST_BODY_MB"],
        },
    )


class BodyLimit(Plugin):
    """Refuse bodies that are too large, declared or sent in chunks."""

    summary = "Refuses request bodies above a limit with 413"
    after = ("network_guard",)
    required = True
    Settings = Settings

    @hookimpl
    def pegboard_provide_middlewares(
        self, services: Services
    ) -> Sequence[Callable[[ASGIApp], ASGIApp]]:
        """Provide the middleware."""
        del services
        limit = cast("Settings", self.settings).max_request_body_mb * _MEBIBYTE
        return [lambda app: BodyLimitMiddleware(app, limit)]


class BodyLimitMiddleware:
    """Check a declared length before anything is read, and count what comes without one."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        """Wrap `app`; `limit` is in bytes."""
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it in the envelope and close the connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fault = self._declared_fault(header_values(scope, b"content-length"))
        if fault is not None:
            await self._refuse(scope, receive, send, fault)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > self._limit:
                    raise self._too_large()
            return message

        await self._app(scope, counted, send)

    def _declared_fault(self, lengths: list[bytes]) -> ApiError | None:
        if not lengths:
            return None
        if len(set(lengths)) > 1 or not lengths[0].isdigit():
            return invalid_request("The Content-Length header is not one whole number.")
        # Compared by digits first: a number of any length must not cost its conversion.
        digits = lengths[0].lstrip(b"0") or b"0"
        if len(digits) > len(str(self._limit)) or int(digits) > self._limit:
            return self._too_large()
        return None

    def _too_large(self) -> ApiError:
        limit = self._limit // _MEBIBYTE
        message = f"The request body is larger than {limit} MiB; --max-request-body-mb raises it."
        return ApiError(413, message, code="request_too_large")

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, fault: ApiError) -> None:
        """Send the error whole, then take what is on its way: a reset would lose the answer."""
        await send_error(scope, send, fault, headers=[_CLOSE], more_body=True)
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                while (message := await receive())["type"] == "http.request":
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


plugin = BodyLimit
