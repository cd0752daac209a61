"""What supervisors ask: whether the process lives, whether it is ready, how it is."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

import os
import platform
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

import msgspec
from pegboard_contracts.errors import ApiError, ErrorBody
from pegboard_contracts.http import json_response, response_schema
from pegboard_contracts.models import ModelDirectory, ModelState
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services

if TYPE_CHECKING:
    from fastapi import APIRouter

_PREPARING = {
    ModelState.QUEUED,
    ModelState.DOWNLOADING,
    ModelState.CONVERTING,
    ModelState.FINALIZING,
    ModelState.LOADING,
}


class ModelCounts(msgspec.Struct, frozen=True):
    """Count the models by what they are doing."""

    registered: int
    loaded: int
    preparing: int
    failed: int


class ProcessState(msgspec.Struct, frozen=True):
    """Identify the server's process."""

    pid: int
    uptime_seconds: float


class RuntimeState(msgspec.Struct, frozen=True):
    """Name what the server runs on; `openvino_genai` is null where it is not installed."""

    python: str
    platform: str
    openvino_genai: str | None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Show how the server is; `busy` while a model is being prepared.

    `device` is the default one, `devices` are those in use.
    """

    status: Literal["ok", "busy"]
    version: str
    uptime_seconds: float
    device: str
    devices: list[str]
    models_loaded: int
    loading_count: int
    any_busy: bool
    process: ProcessState
    runtime: RuntimeState
    models: ModelCounts


class Liveness(msgspec.Struct, frozen=True):
    """Say that the process answers."""

    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """Say whether the server is ready; `error` is set while it is not."""

    status: Literal["ready", "busy"]
    message: str | None = None
    error: ErrorBody | None = None


class HealthRoutes(Plugin):
    """Serve `GET /health`, `/health/live` and `/health/ready`."""

    summary = "GET /health, /health/live and /health/ready"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from fastapi import APIRouter  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        directory, info = services.get(ModelDirectory), services.get(ServerInfo)
        runtime = RuntimeState(
            platform.python_version(), platform.platform(), _installed("openvino-genai")
        )
        started = info.started_at or time.time()

        async def health() -> Response:
            return json_response(_health(directory, info, runtime, started))

        async def live() -> Response:
            return json_response(Liveness())

        async def ready() -> Response:
            if not count_models(directory).preparing:
                return json_response(Readiness("ready"))
            message = "A model is being prepared."
            fault = ApiError(503, message, code="model_loading", retry_after=1)
            response = json_response(Readiness("busy", message, fault.body()), fault.status)
            response.headers.update(fault.headers())
            return response

        router = APIRouter(prefix="/health", tags=["health"])
        for path, endpoint, summary, shape in (
            ("", health, "Show how the server is", Health),
            ("/live", live, "Tell that the process lives", Liveness),
            ("/ready", ready, "Tell whether no model is being prepared", Readiness),
        ):
            router.add_api_route(
                path,
                endpoint,
                methods=["GET"],
                summary=summary,
                response_model=None,
                responses=response_schema(shape, summary),
            )
        return [router]


def count_models(directory: ModelDirectory) -> ModelCounts:
    """Count the models of a directory."""
    states = [view.state for view in directory.models()]
    return ModelCounts(
        registered=len(states),
        loaded=states.count(ModelState.LOADED),
        preparing=sum(state in _PREPARING for state in states),
        failed=states.count(ModelState.ERROR),
    )


def _health(
    directory: ModelDirectory, info: ServerInfo, runtime: RuntimeState, started: float
) -> Health:
    counts = count_models(directory)
    uptime = round(time.time() - started, 3)
    return Health(
        status="busy" if counts.preparing else "ok",
        version=info.version,
        uptime_seconds=uptime,
        device=info.default_device,
        devices=sorted({view.device for view in directory.models() if view.device}),
        models_loaded=counts.loaded,
        loading_count=counts.preparing,
        any_busy=counts.preparing > 0,
        process=ProcessState(os.getpid(), uptime),
        runtime=runtime,
        models=counts,
    )


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


plugin = HealthRoutes
