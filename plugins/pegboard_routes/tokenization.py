"""Tokens without generation: what a prompt becomes, and what token ids say."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import GenerationRequest, PromptPreparer
from pegboard_contracts.http import (
    RequestModel,
    json_response,
    read_body,
    request_schema,
    response_schema,
)
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.principal import Principal, principal_of
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pydantic import Field, JsonValue

from pegboard_routes._chat_request import ChatRequest
from pegboard_routes._chat_translation import generation_requests
from pegboard_routes._completion_request import TokenId, prompt_request

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.requests import Request


class TokenizeRequest(RequestModel):
    """Name a raw text (`prompt` or `content`), or a conversation as a chat completion has it.

    A text begins with what the model's tokenizer begins every text with, as in a completion,
    unless `add_special_tokens` (`add_special`) is false.
    """

    model: str = Field(min_length=1)
    prompt: str | None = None
    content: str | None = None
    messages: list[JsonValue] | None = None
    add_special_tokens: bool | None = None
    add_special: bool | None = None
    with_pieces: bool | None = None


class DetokenizeRequest(RequestModel):
    """Name token ids."""

    model: str = Field(min_length=1)
    tokens: list[TokenId]


class TokenPiece(msgspec.Struct, frozen=True):
    """Show a token and its own text, which is no whole character for some."""

    id: int
    piece: str


class Tokenized(msgspec.Struct, frozen=True, kw_only=True):
    """Show the tokens of a prompt, and how many the model takes at most."""

    model: str
    count: int
    max_model_len: int
    tokens: list[int | TokenPiece]


class Detokenized(msgspec.Struct, frozen=True, kw_only=True):
    """Show the text of token ids, under the names of two kinds of clients."""

    model: str
    prompt: str
    content: str


class AppliedTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """Show a conversation as the model's template renders it."""

    model: str
    prompt: str


class Tokenization(Plugin):
    """Serve `POST /tokenize`, `/detokenize` and `/apply-template`."""

    summary = "POST /tokenize, /detokenize and /apply-template, with and without /v1"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from fastapi import APIRouter, Request  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        preparer = services.get(PromptPreparer)
        status = services.get(ServerInfo).schema_error_status.get("native", 422)

        async def tokenize(request: Request) -> Response:
            body = await read_body(request, TokenizeRequest, schema_status=status)
            wanted = await _asked(request, body, status)
            return json_response(await _tokenized(preparer, wanted, pieces=bool(body.with_pieces)))

        async def detokenize(request: Request) -> Response:
            body = await read_body(request, DetokenizeRequest, schema_status=status)
            asked = prompt_request(body.model, body.tokens, principal_of(request))
            try:
                prompt = await preparer.prepare(asked)
            except ApiError as error:
                error.param = "tokens" if error.param == "prompt" else error.param
                raise
            return json_response(
                Detokenized(model=prompt.model, prompt=prompt.text, content=prompt.text)
            )

        async def apply_template(request: Request) -> Response:
            wanted = await _conversation(request, status)
            prompt = await preparer.prepare(wanted)
            return json_response(AppliedTemplate(model=prompt.model, prompt=prompt.text))

        router = APIRouter(tags=["tokens"])
        for path, endpoint, summary, body, shape in (
            ("/tokenize", tokenize, "Show a prompt's tokens", TokenizeRequest, Tokenized),
            ("/detokenize", detokenize, "Show tokens' text", DetokenizeRequest, Detokenized),
            ("/apply-template", apply_template, "Render a chat", ChatRequest, AppliedTemplate),
        ):
            for prefix in ("", "/v1"):
                router.add_api_route(
                    prefix + path,
                    endpoint,
                    methods=["POST"],
                    summary=summary,
                    response_model=None,
                    openapi_extra=request_schema(body),
                    responses=response_schema(shape, summary),
                )
        return [router]


async def _asked(request: "Request", body: TokenizeRequest, status: int) -> GenerationRequest:
    given = [text for text in (body.prompt, body.content) if text is not None]
    if len(given) + (body.messages is not None) != 1:
        message = "Give exactly one of 'prompt', 'content' and 'messages'."
        raise ApiError(status, message, param="prompt", code="invalid_value")
    if body.messages is not None:
        return await _conversation(request, status)
    bare = False in (body.add_special_tokens, body.add_special)
    asked = prompt_request(body.model, given[0], principal_of(request))
    return msgspec.structs.replace(asked, add_special_tokens=not bare)


async def _conversation(request: "Request", status: int) -> GenerationRequest:
    body = await read_body(request, ChatRequest, schema_status=status)
    return generation_requests(body, principal_of(request))[0]


async def _tokenized(
    preparer: PromptPreparer, wanted: GenerationRequest, *, pieces: bool
) -> Tokenized:
    prompt = await preparer.prepare(wanted)
    tokens: list[int | TokenPiece] = [*prompt.token_ids]
    if pieces:
        texts = {
            token: await _piece(preparer, prompt.model, token, wanted.principal)
            for token in set(prompt.token_ids)
        }
        tokens = [TokenPiece(token, texts[token]) for token in prompt.token_ids]
    return Tokenized(
        model=prompt.model,
        count=len(prompt.token_ids),
        max_model_len=prompt.context_tokens,
        tokens=tokens,
    )


async def _piece(preparer: PromptPreparer, model: str, token: int, principal: Principal) -> str:
    return (await preparer.prepare(prompt_request(model, [token], principal))).text


plugin = Tokenization
