"""The list of models, one of them by id or alias, and the state of all."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
from pegboard_contracts.encoding import ModelKind
from pegboard_contracts.errors import model_not_found
from pegboard_contracts.http import json_response
from pegboard_contracts.models import ModelDirectory, ModelState, ModelView
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services

from pegboard_routes._model_wire import Snapshot, snapshot
from pegboard_routes._native import add_route, fresh_response

if TYPE_CHECKING:
    from fastapi import APIRouter


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Show a model as clients list it, with its state in this server.

    `kind` is what it can be asked for, `status` the state, `revision` grows with every
    change, `error` says why the state is `error`. The context is in tokens; formats and
    device are known once it is loaded.
    """

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "pegboard"
    name: str
    description: str
    aliases: tuple[str, ...]
    backend: str
    kind: ModelKind
    status: ModelState
    revision: int
    error: str | None
    device: str | None
    recommended_device: str
    context_tokens: int | None
    max_output_tokens: int | None
    tool_format: str | None
    tool_format_reason: str | None
    reasoning_format: str | None
    reasoning_format_reason: str | None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """List every registered model, loaded or not."""

    object: Literal["list"] = "list"
    data: list[ListedModel]


class Models(Plugin):
    """Serve `GET /v1/models`, `/v1/models/status` and `/v1/models/{id}`.

    A model whose id is a word of these routes (`status`, `context`, `contexts`, `suggested`,
    `search-hf`) is found in the list and under its aliases.
    """

    summary = "GET /v1/models, /v1/models/status and /v1/models/{id}"
    # The path of one model takes everything, slashes included: it comes last.
    after = ("model_contexts", "model_library", "model_loading")

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from fastapi import APIRouter  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        directory, info = services.get(ModelDirectory), services.get(ServerInfo)

        async def list_models() -> Response:
            return json_response(ModelList(data=[listed(view) for view in directory.models()]))

        async def show_status() -> Response:
            return fresh_response(snapshot(directory, info))

        async def get_model(model_id: str) -> Response:
            view = directory.find(model_id)
            if view is None:
                raise model_not_found(model_id)
            return json_response(listed(view))

        router = APIRouter(prefix="/v1/models", tags=["models"])
        add_route(router, "GET", "", list_models, summary="List the models", answer=ModelList)
        summary = "Show what every model is doing, with progress"
        add_route(router, "GET", "/status", show_status, summary=summary, answer=Snapshot)
        summary = "Show a model by its id or an alias, slashes included"
        add_route(router, "GET", "/{model_id:path}", get_model, summary=summary, answer=ListedModel)
        return [router]


def listed(view: ModelView) -> ListedModel:
    """Put a model's view into the shape of the list."""
    entry = view.entry
    return ListedModel(
        id=entry.id,
        created=view.created,
        name=entry.name or entry.id,
        description=entry.description,
        aliases=entry.aliases,
        backend=entry.backend,
        kind=view.kind,
        status=view.state,
        revision=view.revision,
        error=view.error,
        device=view.device,
        recommended_device=entry.recommended_device,
        context_tokens=view.context_tokens or entry.max_context_len,
        max_output_tokens=entry.max_output_tokens,
        tool_format=view.tool_format,
        tool_format_reason=view.tool_format_reason,
        reasoning_format=view.reasoning_format,
        reasoning_format_reason=view.reasoning_format_reason,
    )


plugin = Models
