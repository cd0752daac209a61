"""What native routes share: bodies that refuse unknown fields, answers that nobody keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

from pegboard_contracts.http import json_response, request_schema, response_schema
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.responses import Response

ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""An id or an alias; whether it exists is another question."""

DeviceWords = Annotated[str, StringConstraints(max_length=200)]
"""A device expression of any form: the backends say which ones they understand."""


class NativeRequest(BaseModel):
    """Be the base of bodies of native routes: strict scalars, no unknown fields (decision 7)."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class ModelRequest(NativeRequest):
    """Name a model."""

    model: ModelName = Field(description="Id or alias of a registered model.")


def fresh_response(value: Any, status: int = 200) -> Response:  # noqa: ANN401 - any encodable value
    """Answer with what is true now and must not be kept by anybody."""
    response = json_response(value, status)
    response.headers["cache-control"] = "no-store"
    return response


def add_route(  # noqa: PLR0913 - what a route is made of
    router: APIRouter,
    method: str,
    path: str,
    endpoint: Callable[..., Awaitable[Response]],
    *,
    summary: str,
    answer: Any,  # noqa: ANN401 - a type
    body: type[BaseModel] | None = None,
    streamed: bool = False,
) -> None:
    """Add a route that reads and encodes by itself; `body` and `answer` describe it."""
    router.add_api_route(
        path,
        endpoint,
        methods=[method],
        summary=summary,
        response_model=None,
        openapi_extra=None if body is None else request_schema(body),
        responses=response_schema(answer, summary, streamed=streamed),
    )
