"""Embeddings: texts and token ids to vectors."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pegboard_contracts.encoding import Embedder
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

from pegboard_routes._embedding_wire import EmbeddingList, EmbeddingsBody, embedding_list

if TYPE_CHECKING:
    from fastapi import APIRouter


class EmbeddingRoutes(Plugin):
    """Serve `POST /v1/embeddings`."""

    summary = "POST /v1/embeddings, as numbers and as base64"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the route."""
        from fastapi import APIRouter, Request  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        embedder = services.get(Embedder)
        status = services.get(ServerInfo).schema_error_status.get("openai", 422)

        async def create_embeddings(request: Request) -> Response:
            body = await read_body(request, EmbeddingsBody, schema_status=status)
            work = embedder.embed(body.request(principal_of(request)))
            embeddings = await until_disconnect(request, work)
            as_base64 = body.encoding_format == "base64"
            return json_response(embedding_list(embeddings, as_base64=as_base64))

        router = APIRouter(tags=["embeddings"])
        router.add_api_route(
            "/v1/embeddings",
            create_embeddings,
            methods=["POST"],
            summary="Embed texts or token ids",
            response_model=None,
            openapi_extra=request_schema(EmbeddingsBody),
            responses=response_schema(EmbeddingList, "The vectors, in the order of the inputs"),
        )
        return [router]


plugin = EmbeddingRoutes
