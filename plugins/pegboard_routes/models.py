"""The list of models, and one of them by id or alias."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
from pegboard_contracts.encoding import ModelKind
from pegboard_contracts.errors import model_not_found
from pegboard_contracts.http import json_response, response_schema
from pegboard_contracts.models import ModelDirectory, ModelState, ModelView
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.services import Services

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
    """Serve `GET /v1/models` and `GET /v1/models/{id}`."""

    summary = "GET /v1/models and /v1/models/{id}, with the state of each"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from fastapi import APIRouter  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        directory = services.get(ModelDirectory)

        async def list_models() -> Response:
            return json_response(ModelList(data=[listed(view) for view in directory.models()]))

        async def get_model(model_id: str) -> Response:
            view = directory.find(model_id)
            if view is None:
                raise model_not_found(model_id)
            return json_response(listed(view))

        router = APIRouter(prefix="/v1/models", tags=["models"])
        router.add_api_route(
            "",
            list_models,
            methods=["GET"],
            summary="List the models",
            response_model=None,
            responses=response_schema(ModelList, "Every registered model, by id"),
        )
        router.add_api_route(
            "/{model_id:path}",
            get_model,
            methods=["GET"],
            summary="Show a model by its id or an alias, slashes included",
            response_model=None,
            responses=response_schema(ListedModel, "The model"),
        )
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
