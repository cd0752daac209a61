"""Load and unload registered models: the verbs that change what this server serves."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pegboard_contracts.errors import invalid_request
from pegboard_contracts.http import read_body
from pegboard_contracts.lifecycle import LoadOptions, ModelLifecycle
from pegboard_contracts.models import ModelState, ModelView
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pydantic import Field

from pegboard_routes._model_wire import Acknowledgement, acknowledged, running_operation
from pegboard_routes._native import (
    DeviceWords,
    ModelName,
    ModelRequest,
    add_route,
    fresh_response,
)

if TYPE_CHECKING:
    from fastapi import APIRouter

_MOST_WAITING_SECONDS = 5.0


class LoadRequest(ModelRequest):
    """Say which model is loaded, and how."""

    device: DeviceWords | None = Field(
        default=None, description="Device expression; null is the recommended one."
    )
    context_tokens: int | None = Field(
        default=None, description="Context in tokens, kept for later loads too."
    )
    force: bool = Field(default=False, description="Load although memory may not suffice.")
    pinned: bool | None = Field(
        default=None, description="Whether the model stays when it is idle or others need room."
    )
    draft_model: ModelName | None = Field(
        default=None, description="Refused: this server does not speculate."
    )


class ModelLoading(Plugin):
    """Serve `POST /v1/models/load` and `POST /v1/models/unload`.

    A load answers at once: the work goes on, and the model's progress tells how it ends. An
    unload answers when the engine is gone, or after some seconds while answers still run.
    """

    summary = "POST /v1/models/load and /v1/models/unload"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from fastapi import APIRouter, Request  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        lifecycle = services.get(ModelLifecycle)
        status = services.get(ServerInfo).schema_error_status.get("native", 422)

        async def load_model(request: Request) -> Response:
            body = await read_body(request, LoadRequest, schema_status=status)
            view = await lifecycle.load(body.model, _options(body))
            return fresh_response(_load_taken(view))

        async def unload_model(request: Request) -> Response:
            body = await read_body(request, ModelRequest, schema_status=status)
            view = await lifecycle.unload(body.model)
            if view.state is ModelState.UNLOADING:
                view = await _gone(lifecycle, view)
            return fresh_response(_unload_taken(view))

        router = APIRouter(prefix="/v1/models", tags=["models"])
        add_route(
            router,
            "POST",
            "/load",
            load_model,
            summary="Load a registered model",
            body=LoadRequest,
            answer=Acknowledgement,
        )
        add_route(
            router,
            "POST",
            "/unload",
            unload_model,
            summary="Free a loaded model after its running answers",
            body=ModelRequest,
            answer=Acknowledgement,
        )
        return [router]


def _options(body: LoadRequest) -> LoadOptions:
    if body.draft_model is not None:
        message = (
            "'draft_model' is not supported: this server does not speculate with a second model. "
            "Leave it out."
        )
        raise invalid_request(message, param="draft_model", code="not_supported")
    return LoadOptions(
        device=body.device,
        context_tokens=body.context_tokens,
        force=body.force,
        pinned=body.pinned,
    )


def _load_taken(view: ModelView) -> Acknowledgement:
    model, running = view.entry.id, running_operation(view)
    if running is not None and running.operation_type != "load":
        message = f"'{model}' is being prepared and will be loaded when its files are there."
        return acknowledged(view, "queued", message)
    if view.state is not ModelState.LOADED:
        return acknowledged(view, view.state.value, f"'{model}' is being loaded.")
    if running is None:
        return acknowledged(view, "loaded", f"'{model}' is already loaded.")
    message = f"'{model}' goes on as it is until it is loaded on {view.requested_device}."
    return acknowledged(view, "loading", message)


def _unload_taken(view: ModelView) -> Acknowledgement:
    model = view.entry.id
    if view.state is ModelState.UNLOADING:
        message = f"'{model}' takes no new requests and is unloaded when its answers are complete."
        return acknowledged(view, "unloading", message)
    return acknowledged(view, "unloaded", f"'{model}' is not loaded any more.")


async def _gone(lifecycle: ModelLifecycle, view: ModelView) -> ModelView:
    """Wait a little for the end of an unload, which goes on without us."""
    waiting = asyncio.ensure_future(lifecycle.settled(view.entry.id))
    done, _ = await asyncio.wait((waiting,), timeout=_MOST_WAITING_SECONDS)
    if done:
        return waiting.result()
    waiting.cancel()
    return view


plugin = ModelLoading
