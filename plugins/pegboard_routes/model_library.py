"""Bring models in, prepare them, and take them out again."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from pegboard_contracts.errors import (
    ApiError,
    invalid_request,
    model_not_found,
    not_supported,
)
from pegboard_contracts.http import read_body
from pegboard_contracts.hub import ModelHub, SearchHit
from pegboard_contracts.lifecycle import (
    CancelOutcome,
    LoadOptions,
    ModelLifecycle,
    SuggestedModel,
)
from pegboard_contracts.models import ModelDirectory, ModelState, ModelView, OperationType
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services

from pegboard_routes._library_requests import (
    CancelRequest,
    ConvertRequest,
    DownloadRequest,
    RegisterRequest,
)
from pegboard_routes._model_wire import (
    Acknowledgement,
    ShownModel,
    acknowledged,
    running_operation,
    shown,
)
from pegboard_routes._native import ModelRequest, add_route, fresh_response

if TYPE_CHECKING:
    from fastapi import APIRouter

_BYTES_OF_A_GB = 1_000_000_000


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """Tell that exactly this operation is cancelled, now or since before."""

    status: Literal["cancelled"] = "cancelled"
    operation_id: str
    operation_type: OperationType
    already_cancelled: bool
    message: str
    model_id: str
    model: ShownModel


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """Tell what deleting a model's files freed; `noop` when there were none."""

    status: Literal["deleted", "noop"]
    message: str
    freed_bytes: int
    freed_gb: float
    model_id: str
    model: ShownModel


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """Tell that a model is gone from the catalogue, with its files."""

    id: str
    object: Literal["model"] = "model"
    deleted: Literal[True] = True
    freed_bytes: int
    freed_gb: float


class Suggestions(msgspec.Struct, frozen=True, kw_only=True):
    """List good models to begin with; no network is needed and nothing is registered."""

    object: Literal["list"] = "list"
    data: list[SuggestedModel]


class ModelLibrary(Plugin):
    """Serve the routes under `/v1/models` that change the library, and what it can get.

    Nothing that a client says twice is done twice: a registration and a download are the same
    as before, a conversion that runs is the one that is told.
    """

    summary = "Register, convert, download, cancel, delete, remove, suggest and search models"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from fastapi import APIRouter  # noqa: PLC0415 - heavy

        router = APIRouter(prefix="/v1/models", tags=["models"])
        lifecycle = services.get(ModelLifecycle)
        status = services.get(ServerInfo).schema_error_status.get("native", 422)
        _add_preparing(router, lifecycle, status)
        _add_removing(router, lifecycle, services.get(ModelDirectory), status)
        _add_finding(router, lifecycle, services.find(ModelHub))
        return [router]


def _add_preparing(router: "APIRouter", lifecycle: ModelLifecycle, status: int) -> None:
    from fastapi import Request  # noqa: PLC0415 - heavy
    from starlette.responses import Response  # noqa: PLC0415 - heavy

    async def register(request: Request) -> Response:
        body = await read_body(request, RegisterRequest, schema_status=status)
        view, added = await lifecycle.register(body.registration())
        how = "is registered" if added else "was registered like this already"
        return fresh_response(acknowledged(view, "registered", f"'{view.entry.id}' {how}."))

    async def convert(request: Request) -> Response:
        body = await read_body(request, ConvertRequest, schema_status=status)
        return fresh_response(_preparing(await lifecycle.convert(body.model, body.options())))

    async def download(request: Request) -> Response:
        body = await read_body(request, DownloadRequest, schema_status=status)
        return fresh_response(_preparing(await _download(lifecycle, body)))

    async def cancel(request: Request) -> Response:
        body = await read_body(request, CancelRequest, schema_status=status)
        return fresh_response(_cancelled(await lifecycle.cancel(body.model, body.operation_id)))

    summary = "Add a model to the catalogue"
    add_route(
        router,
        "POST",
        "/register",
        register,
        summary=summary,
        body=RegisterRequest,
        answer=Acknowledgement,
    )
    summary = "Fetch and convert a registered model"
    add_route(
        router,
        "POST",
        "/convert",
        convert,
        summary=summary,
        body=ConvertRequest,
        answer=Acknowledgement,
    )
    summary = "Register a model, fetch and convert it, and load it when it is ready"
    add_route(
        router,
        "POST",
        "/download-custom",
        download,
        summary=summary,
        body=DownloadRequest,
        answer=Acknowledgement,
    )
    summary = "Cancel exactly one operation of a model"
    add_route(
        router, "POST", "/cancel", cancel, summary=summary, body=CancelRequest, answer=Cancelled
    )


def _add_removing(
    router: "APIRouter", lifecycle: ModelLifecycle, directory: ModelDirectory, status: int
) -> None:
    from fastapi import Request  # noqa: PLC0415 - heavy
    from starlette.responses import Response  # noqa: PLC0415 - heavy

    async def delete(request: Request) -> Response:
        body = await read_body(request, ModelRequest, schema_status=status)
        return fresh_response(_deleted(*await lifecycle.delete_files(body.model)))

    async def remove(model_id: str) -> Response:
        view = directory.find(model_id)
        if view is None:
            raise model_not_found(model_id)
        freed = await lifecycle.remove(view.entry.id)
        told = Removed(id=view.entry.id, freed_bytes=freed, freed_gb=freed / _BYTES_OF_A_GB)
        return fresh_response(told)

    summary = "Delete the files of a model that is not loaded; its entry stays"
    add_route(router, "POST", "/delete", delete, summary=summary, body=ModelRequest, answer=Deleted)
    summary = "Remove a model and its files"
    add_route(router, "DELETE", "/{model_id:path}", remove, summary=summary, answer=Removed)


def _add_finding(router: "APIRouter", lifecycle: ModelLifecycle, hub: ModelHub | None) -> None:
    from fastapi import Query  # noqa: PLC0415 - heavy
    from starlette.responses import Response  # noqa: PLC0415 - heavy

    async def suggest() -> Response:
        return fresh_response(Suggestions(data=lifecycle.suggestions()))

    async def search(
        query: Annotated[str, Query(min_length=1, max_length=200)],
        limit: Annotated[int, Query(ge=1, le=50)] = 10,
        task: Annotated[str, Query(min_length=1, max_length=80)] = "text-generation",
    ) -> Response:
        if hub is None:
            raise not_supported("query", "The plugin 'hub' is not active, so nothing is searched.")
        if not query.strip():
            raise invalid_request("'query' is blank: name what is searched.", param="query")
        return fresh_response(await hub.search(query.strip(), limit=limit, task=task))

    summary = "Name good models to begin with, without a network"
    add_route(router, "GET", "/suggested", suggest, summary=summary, answer=Suggestions)
    add_route(
        router,
        "GET",
        "/search-hf",
        search,
        summary="Search the hub; nothing says that a hit runs here",
        answer=list[SearchHit],
    )


async def _download(lifecycle: ModelLifecycle, body: DownloadRequest) -> ModelView:
    """Register and prepare; what is refused leaves no entry behind."""
    view, added = await lifecycle.register(body.registration())
    model = view.entry.id
    if view.is_downloaded and not added and running_operation(view) is None:
        _check_same_options(view, body)
        if body.load_after and view.state is not ModelState.LOADED:
            return await lifecycle.load(model, LoadOptions())
        return view
    try:
        return await lifecycle.convert(model, body.options())
    except ApiError:
        if added:
            with contextlib.suppress(ApiError):
                await lifecycle.remove(model)
        raise


def _check_same_options(view: ModelView, body: DownloadRequest) -> None:
    differing = [
        name
        for name in ("group_size", "ratio", "sym")
        if getattr(body, name) is not None and getattr(view.entry, name) != getattr(body, name)
    ]
    if differing:
        message = (
            f"The model '{view.entry.id}' is here already and differs in: {', '.join(differing)}. "
            "Choose another id, or convert it again with POST /v1/models/convert."
        )
        raise ApiError(409, message, param=differing[0], code="model_exists")


def _preparing(view: ModelView) -> Acknowledgement:
    model, running = view.entry.id, running_operation(view)
    if running is not None and running.operation_type != "load":
        return acknowledged(view, "queued_convert", f"'{model}' is being prepared.")
    if running is not None or view.state is ModelState.LOADING:
        return acknowledged(view, "loading", f"'{model}' is here and is being loaded.")
    return acknowledged(view, view.state.value, f"'{model}' is here already.")


def _cancelled(outcome: CancelOutcome) -> Cancelled:
    model = outcome.view.entry.id
    when = "was cancelled before" if outcome.already_cancelled else "is cancelled"
    return Cancelled(
        operation_id=outcome.operation_id,
        operation_type=outcome.operation_type,
        already_cancelled=outcome.already_cancelled,
        message=f"The {outcome.operation_type} of '{model}' {when}.",
        model_id=model,
        model=shown(outcome.view),
    )


def _deleted(view: ModelView, freed: int) -> Deleted:
    model = view.entry.id
    message = f"'{model}' has no files of its own here."
    if freed:
        message = f"The files of '{model}' are deleted; its entry stays."
    return Deleted(
        status="deleted" if freed else "noop",
        message=message,
        freed_bytes=freed,
        freed_gb=freed / _BYTES_OF_A_GB,
        model_id=model,
        model=shown(view),
    )


plugin = ModelLibrary
