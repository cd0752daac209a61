"""Middlewares around an endpoint that tells what it was given, asked in plain ASGI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pegboard_contracts.http import request_id
from pegboard_contracts.plugin import Plugin
from pegboard_contracts.principal import principal_of
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Provide = Callable[[Services], Sequence[Callable[[ASGIApp], ASGIApp]]]
Headers = Sequence[tuple[str, str | bytes]]


@dataclass
class Answer:
    """Hold what was sent, and how often the request's body was asked for."""

    messages: list[Message] = field(default_factory=list[Message])
    received: int = 0

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {k.decode(): v.decode("latin-1") for k, v in self.messages[0]["headers"]}

    @property
    def body(self) -> Any:
        return json.loads(b"".join(m.get("body", b"") for m in self.messages))

    @property
    def code(self) -> str:
        assert set(self.body["error"]) == {"message", "type", "param", "code"}
        return str(self.body["error"]["code"])


async def told(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the whole body and answer with what was seen."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept", "headers": []})
        return
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    principal = principal_of(HTTPConnection(scope))
    seen = {
        "size": size,
        "owner": principal.owner,
        "loopback": principal.loopback,
        "request_id": request_id.get(),
    }
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(seen).encode()})


def wrapped(
    plugin_class: type[Plugin],
    *,
    app: ASGIApp = told,
    host: str = "127.0.0.1",
    keys: Sequence[str] = (),
    **settings: object,
) -> ASGIApp:
    """Put the plugin's middlewares around `app`."""
    services = Services()
    services.add(
        ServerInfo,
        ServerInfo(version="1", host=host, port=8000, data_dir=Path(), api_keys=tuple(keys)),
    )
    plugin = plugin_class()
    plugin.configure(plugin_class.Settings.model_validate(settings))
    provide = cast("Provide", plugin.pegboard_provide_middlewares)  # type: ignore[attr-defined]
    for middleware in provide(services):
        app = middleware(app)
    return app


def ask(
    app: ASGIApp,
    *,
    method: str = "GET",
    path: str = "/v1/models",
    headers: Headers = (("host", "localhost:8000"),),
    client: tuple[str, int] | None = ("127.0.0.1", 5),
    body: Sequence[bytes] = (b"",),
    kind: str = "http",
    extensions: dict[str, Any] | None = None,
) -> Answer:
    """Send one request and return what came back."""
    answer = Answer()
    raw = [(k.lower().encode(), v if isinstance(v, bytes) else v.encode()) for k, v in headers]
    scope: Scope = {
        "type": kind,
        "method": method,
        "path": path,
        "headers": raw,
        "client": client,
        "scheme": "http" if kind == "http" else "ws",
        "extensions": extensions or {},
    }

    async def receive() -> Message:
        if answer.received == len(body):
            return {"type": "http.disconnect"}
        answer.received += 1
        more = answer.received < len(body)
        return {"type": "http.request", "body": body[answer.received - 1], "more_body": more}

    async def send(message: Message) -> None:
        answer.messages.append(message)

    async def whole() -> None:
        await app(scope, receive, send)

    asyncio.run(whole())
    return answer


@pytest.fixture
def endpoint() -> ASGIApp:
    return told


@pytest.fixture
def wrap() -> Callable[..., ASGIApp]:
    return wrapped


@pytest.fixture(name="ask")
def ask_fixture() -> Callable[..., Answer]:
    return ask
