"""Rerank: how well documents answer a query, in the shapes of Cohere and Jina."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pegboard_contracts.encoding import Reranker
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

from pegboard_routes._rerank_wire import Ranking, RerankBody, ranking

if TYPE_CHECKING:
    from fastapi import APIRouter

_PATHS = ("/v1/rerank", "/rerank", "/v2/rerank", "/v1/reranking", "/reranking")


class RerankRoutes(Plugin):
    """Serve `POST /v1/rerank` and its aliases."""

    summary = "POST /v1/rerank, /v2/rerank, /rerank and /reranking"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from fastapi import APIRouter, Request  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        reranker = services.get(Reranker)
        status = services.get(ServerInfo).schema_error_status.get("openai", 422)

        async def rerank(request: Request) -> Response:
            body = await read_body(request, RerankBody, schema_status=status)
            work = reranker.rerank(body.request(principal_of(request)))
            return json_response(ranking(body, await until_disconnect(request, work)))

        router = APIRouter(tags=["rerank"])
        for path in _PATHS:
            router.add_api_route(
                path,
                rerank,
                methods=["POST"],
                summary="Order documents by how well they answer a query",
                response_model=None,
                openapi_extra=request_schema(RerankBody),
                responses=response_schema(Ranking, "The documents, the best first"),
                include_in_schema=path == _PATHS[0],
            )
        return [router]


plugin = RerankRoutes
