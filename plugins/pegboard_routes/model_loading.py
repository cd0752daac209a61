"""Load and unload registered models: the verbs that change what this server serves."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from pegboard_contracts.errors import model_not_found
from pegboard_contracts.http import json_response, read_body, request_schema, response_schema
from pegboard_contracts.models import ModelDirectory, ModelState, ModelView
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from fastapi import APIRouter


class ModelRequest(BaseModel):
    """Name the model; native routes refuse fields that nobody knows."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    model: str = Field(min_length=1, description="Id or alias of a registered model.")


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the state right after the verb was taken; `revision` grows with every change."""

    model: str
    status: ModelState
    revision: int


class ModelLoading(Plugin):
    """Serve `POST /v1/models/load` and `POST /v1/models/unload`.

    Both answer at once: the work goes on, and `GET /v1/models/{id}` tells how it ends.
    """

    summary = "POST /v1/models/load and /v1/models/unload"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from fastapi import APIRouter, Request  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        directory = services.get(ModelDirectory)
        status = services.get(ServerInfo).schema_error_status.get("native", 422)
        begun: set[asyncio.Task[ModelView]] = set()

        async def taken(request: Request, verb: Callable[[str], Awaitable[ModelView]]) -> Response:
            body = await read_body(request, ModelRequest, schema_status=status)
            view = directory.find(body.model)
            if view is None:
                raise model_not_found(body.model)
            task = asyncio.ensure_future(_run(verb, view.entry.id))
            begun.add(task)
            task.add_done_callback(begun.discard)
            # What is refused is refused before the first wait; the rest goes on without us.
            await asyncio.sleep(0)
            if task.done():
                task.result()
            task.add_done_callback(_told_by_the_record)
            now = directory.find(view.entry.id) or view
            told = ModelStatus(model=now.entry.id, status=now.state, revision=now.revision)
            return json_response(told)

        async def load_model(request: Request) -> Response:
            return await taken(request, directory.load)

        async def unload_model(request: Request) -> Response:
            return await taken(request, directory.unload)

        router = APIRouter(prefix="/v1/models", tags=["models"])
        for path, endpoint, summary in (
            ("/load", load_model, "Load a registered model"),
            ("/unload", unload_model, "Free a loaded model after its running answers"),
        ):
            router.add_api_route(
                path,
                endpoint,
                methods=["POST"],
                summary=summary,
                response_model=None,
                openapi_extra=request_schema(ModelRequest),
                responses=response_schema(ModelStatus, "The state now"),
            )
        return [router]


def _told_by_the_record(task: asyncio.Task[ModelView]) -> None:
    if not task.cancelled():
        task.exception()


async def _run(verb: Callable[[str], Awaitable[ModelView]], model: str) -> ModelView:
    return await verb(model)


plugin = ModelLoading
