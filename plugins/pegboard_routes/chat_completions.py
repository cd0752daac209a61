"""Chat completions: the OpenAI route that every client knows."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from pegboard_contracts.errors import ApiError
from pegboard_contracts.events import Accepted
from pegboard_contracts.generation import GenerationRequest, Generator
from pegboard_contracts.http import (
    json_response,
    read_body,
    request_schema,
    response_schema,
    until_disconnect,
)
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.principal import principal_of
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pegboard_contracts.sse import EventStream, sse_data

from pegboard_routes._answering import Events, merged, start_answers, together
from pegboard_routes._chat_request import ChatRequest
from pegboard_routes._chat_response import (
    Answer,
    ChatCompletion,
    Chunks,
    Identity,
    completion,
    new_identity,
    usage_chunk,
)
from pegboard_routes._chat_translation import generation_requests

if TYPE_CHECKING:
    from fastapi import APIRouter


class ChatCompletions(Plugin):
    """Serve `POST /v1/chat/completions`, streamed and whole."""

    summary = "POST /v1/chat/completions, streamed and whole"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the route."""
        from fastapi import APIRouter, Request  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        generator, info = services.get(Generator), services.get(ServerInfo)
        schema_status = info.schema_error_status.get("openai", 422)

        async def create_chat_completion(request: Request) -> Response:
            body = await read_body(request, ChatRequest, schema_status=schema_status)
            wanted = generation_requests(body, principal_of(request))
            if not body.stream:
                return json_response(
                    await until_disconnect(request, _whole(generator, wanted, info.version))
                )
            answers, accepted = await until_disconnect(request, start_answers(generator, wanted))
            identity = new_identity(accepted[0].model, info.version)
            return EventStream(
                _streamed(body, identity, answers),
                on_error=_error_chunk,
                keepalive_interval=info.keepalive_interval,
                sources=answers,
            ).as_response()

        router = APIRouter(tags=["chat"])
        router.add_api_route(
            "/v1/chat/completions",
            create_chat_completion,
            methods=["POST"],
            summary="Answer a conversation",
            response_model=None,
            openapi_extra=request_schema(ChatRequest),
            responses=response_schema(ChatCompletion, "The answer", streamed=True),
        )
        return [router]


async def _whole(
    generator: Generator, requests: Sequence[GenerationRequest], version: str
) -> ChatCompletion:
    folded = await together([_folded(generator, request) for request in requests])
    identity = new_identity(folded[0][0], version)
    return completion(identity, [answer for _, answer in folded])


async def _folded(generator: Generator, request: GenerationRequest) -> tuple[str, Answer]:
    answer = Answer(logprobs=request.top_logprobs is not None)
    model = request.model
    async with aclosing(generator.generate(request)) as events:
        async for event in events:
            if isinstance(event, Accepted):
                model = event.model
            answer.add(event)
    return model, answer


async def _streamed(
    body: ChatRequest, identity: Identity, answers: Sequence[Events]
) -> AsyncGenerator[bytes, None]:
    include_usage = bool(body.stream_options and body.stream_options.include_usage)
    choices = [
        Chunks(identity, index, include_usage=include_usage, logprobs=bool(body.logprobs))
        for index in range(len(answers))
    ]
    for choice in choices:
        yield choice.opening()
    if len(choices) == 1:
        # The common case passes one generator less for each token.
        async for event in answers[0]:
            if (chunk := choices[0].chunk(event)) is not None:
                yield chunk
    else:
        async with aclosing(merged(answers)) as events:
            async for index, event in events:
                if (chunk := choices[index].chunk(event)) is not None:
                    yield chunk
    usages = [choice.usage for choice in choices if choice.usage is not None]
    if include_usage and usages:
        yield usage_chunk(identity, usages)


def _error_chunk(error: ApiError) -> tuple[bytes]:
    return (sse_data(error.envelope()),)


plugin = ChatCompletions
