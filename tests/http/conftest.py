"""The chat route over HTTP in process, with a generator that says what a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pegboard_contracts.events import Accepted, Finished, GenerationEvent, TextDelta
from pegboard_contracts.generation import (
    FinishReason,
    GenerationRequest,
    Generator,
    Sampling,
    Usage,
)
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pegboard_kernel.error_handlers import install_error_handlers
from pegboard_routes import chat_completions

Said = Sequence[GenerationEvent | Exception]

ACCEPTED = Accepted(model="canonical", prompt_tokens=3, sampling=Sampling(), max_output_tokens=9)
FINISHED = Finished(
    reason=FinishReason.STOP,
    usage=Usage(prompt_tokens=3, output_tokens=2, reasoning_tokens=1, cached_tokens=2),
)


class SayingGenerator:
    """Yield the given events, and remember what was asked and what was closed."""

    def __init__(self, say: Callable[[GenerationRequest], Said]) -> None:
        self.say = say
        self.requests: list[GenerationRequest] = []
        self.open = 0

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationEvent, None]:
        self.requests.append(request)
        self.open += 1
        try:
            for event in self.say(request):
                await asyncio.sleep(0)
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.open -= 1

    async def count(self, request: GenerationRequest) -> int:
        raise NotImplementedError


class ChatWire:
    """Ask the chat route of an app of its own."""

    def __init__(self, say: Callable[[GenerationRequest], Said], schema_status: int = 422) -> None:
        self.generator = SayingGenerator(say)
        info = ServerInfo(
            version="9",
            host="127.0.0.1",
            port=1,
            data_dir=Path(),
            schema_error_status={"openai": schema_status},
        )
        services = Services()
        services.add(Generator, self.generator)
        services.add(ServerInfo, info)
        self.app = FastAPI()
        for router in chat_completions.plugin().pegboard_provide_routers(services):
            self.app.include_router(router)
        install_error_handlers(self.app, info, [])

    async def post(self, body: bytes) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/v1/chat/completions", content=body)

    def ask(self, body: object) -> httpx.Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return asyncio.run(self.post(raw))

    def asked(self, **fields: object) -> GenerationRequest:
        """Return the generation request that a body with these fields leads to."""
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
        response = self.ask(body)
        assert response.status_code == 200, response.text
        return self.generator.requests[-1]

    def refusal(self, **fields: object) -> tuple[int, dict[str, Any]]:
        """Return status and error of a body with these fields; nothing was generated."""
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
        response = self.ask(body)
        assert not self.generator.requests
        error: dict[str, Any] = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return response.status_code, error


def chunks_of(text: str) -> list[dict[str, Any]]:
    """Read a stream that ends with its one terminal marker."""
    frames = text.split("\n\n")
    assert frames[-1] == ""
    assert frames[-2] == "data: [DONE]"
    data = [frame for frame in frames[:-2] if not frame.startswith(":")]
    return [json.loads(frame.removeprefix("data: ")) for frame in data]


@pytest.fixture
def wire() -> Callable[..., ChatWire]:
    def make(*events: GenerationEvent | Exception, schema_status: int = 422) -> ChatWire:
        said = events or (ACCEPTED, TextDelta("ok"), FINISHED)
        return ChatWire(lambda _: said, schema_status)

    return make


@pytest.fixture
def saying() -> Callable[[Callable[[GenerationRequest], Said]], ChatWire]:
    return ChatWire


@pytest.fixture
def read_chunks() -> Callable[[str], list[dict[str, Any]]]:
    return chunks_of
