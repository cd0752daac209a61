"""Completions: raw text goes on, without a chat template."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec
from pegboard_contracts.errors import ApiError
from pegboard_contracts.events import Accepted, Finished, PromptLogprobs
from pegboard_contracts.generation import GenerationRequest, Generator, PromptPreparer, Usage
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
from pegboard_routes._chat_response import Identity
from pegboard_routes._completion_request import CompletionRequest, completion_requests
from pegboard_routes._completion_response import (
    Choice,
    Completion,
    CompletionChunks,
    completion,
    completion_usage_chunk,
    new_completion_identity,
)

if TYPE_CHECKING:
    from fastapi import APIRouter


class Completions(Plugin):
    """Serve `POST /v1/completions`, streamed and whole."""

    summary = "POST /v1/completions: raw prompts, streamed and whole"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the route."""
        from fastapi import APIRouter, Request  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        generator, info = services.get(Generator), services.get(ServerInfo)
        preparer = services.get(PromptPreparer)
        schema_status = info.schema_error_status.get("openai", 422)

        async def create_completion(request: Request) -> Response:
            body = await read_body(request, CompletionRequest, schema_status=schema_status)
            wanted = completion_requests(body, principal_of(request))
            if not body.stream:
                work = _whole(generator, preparer, body, wanted, info.version)
                return json_response(await until_disconnect(request, work))
            echoes = await until_disconnect(request, _echoes(preparer, body, wanted))
            answers, accepted = await until_disconnect(request, start_answers(generator, wanted))
            identity = new_completion_identity(accepted[0].model, info.version)
            return EventStream(
                _streamed(body, identity, echoes, answers),
                on_error=_error_chunk,
                keepalive_interval=info.keepalive_interval,
                sources=answers,
            ).as_response()

        router = APIRouter(tags=["completions"])
        router.add_api_route(
            "/v1/completions",
            create_completion,
            methods=["POST"],
            summary="Continue raw prompts",
            response_model=None,
            openapi_extra=request_schema(CompletionRequest),
            responses=response_schema(Completion, "The answers", streamed=True),
        )
        return [router]


async def _whole(
    generator: Generator,
    preparer: PromptPreparer,
    body: CompletionRequest,
    requests: Sequence[GenerationRequest],
    version: str,
) -> Completion:
    echoes = await _echoes(preparer, body, requests)
    folded = await together(
        [_folded(generator, request, echo) for request, echo in zip(requests, echoes, strict=True)]
    )
    choices = [choice for _, choice in folded]
    each = body.answers_each
    return completion(
        new_completion_identity(folded[0][0], version),
        [choices[start : start + each] for start in range(0, len(choices), each)],
        best=body.n or 1,
        logprobs=body.logprobs is not None,
    )


async def _folded(
    generator: Generator, request: GenerationRequest, echo: str
) -> tuple[str, Choice]:
    choice, model = Choice(echo), request.model
    async with aclosing(generator.generate(request)) as events:
        async for event in events:
            if isinstance(event, Accepted):
                model = event.model
            choice.add(event)
    return model, choice


async def _echoes(
    preparer: PromptPreparer, body: CompletionRequest, requests: Sequence[GenerationRequest]
) -> list[str]:
    """Return the text that stands in front of each answer: the prompt's, or none."""
    if not body.echo:
        return [""] * len(requests)
    texts: list[str] = []
    for request in requests[:: body.answers_each]:
        text = request.prompt_text
        if text is None:
            plain = msgspec.structs.replace(request, prompt_suffix=None)
            text = (await preparer.prepare(plain)).text
        texts += [text] * body.answers_each
    return texts


async def _streamed(
    body: CompletionRequest, identity: Identity, echoes: Sequence[str], answers: Sequence[Events]
) -> AsyncGenerator[bytes, None]:
    include_usage, logprobs = body.include_usage, body.logprobs is not None
    choices = [
        CompletionChunks(identity, index, include_usage=include_usage, logprobs=logprobs)
        for index in range(len(answers))
    ]
    for choice, echo in zip(choices, echoes, strict=True):
        if echo and not body.scores_prompts:
            yield choice.echo(echo)
    usages: list[list[Usage]] = [[] for _ in body.prompts]
    async with aclosing(merged(answers)) as events:
        async for index, event in events:
            if isinstance(event, PromptLogprobs):
                yield choices[index].echo(echoes[index], event.tokens)
            elif (chunk := choices[index].chunk(event)) is not None:
                yield chunk
            if isinstance(event, Finished):
                usages[index // body.answers_each].append(event.usage)
    if include_usage:
        yield completion_usage_chunk(identity, usages)


def _error_chunk(error: ApiError) -> tuple[bytes]:
    return (sse_data(error.envelope()),)


plugin = Completions
