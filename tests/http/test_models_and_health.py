"""The list of models and the health routes, over a directory of known models."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pegboard_contracts.models import ModelDirectory, ModelEntry, ModelState, ModelView
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pegboard_kernel.error_handlers import install_error_handlers
from pegboard_routes import health, models


class KnownModels:
    """Know two models; `state` is that of the second."""

    def __init__(self, state: ModelState = ModelState.LOADED) -> None:
        self._views = [
            view("a", ModelState.READY_TO_LOAD),
            view("b", state, aliases=("org/name", "gpt-4o-mini")),
        ]

    def models(self) -> list[ModelView]:
        return self._views

    def find(self, name: str) -> ModelView | None:
        return next((v for v in self._views if name in {v.entry.id, *v.entry.aliases}), None)

    async def load(self, model: str) -> ModelView:
        raise NotImplementedError(model)

    async def unload(self, model: str) -> ModelView:
        raise NotImplementedError(model)

    async def inspect(self, model: str) -> dict[str, Any]:
        raise NotImplementedError(model)


def view(model: str, state: ModelState, aliases: tuple[str, ...] = ()) -> ModelView:
    entry = ModelEntry(id=model, source_model="x", name=f"Model {model}", aliases=aliases)
    device = "CPU" if state is ModelState.LOADED else None
    return ModelView(entry=entry, state=state, revision=4, created=1700000000, device=device)


def get(path: str, state: ModelState = ModelState.LOADED) -> httpx.Response:
    info = ServerInfo(version="9", host="127.0.0.1", port=1, data_dir=Path())
    services = Services()
    services.add(ModelDirectory, KnownModels(state))
    services.add(ServerInfo, info)
    app = FastAPI()
    for plugin in (models.plugin(), health.plugin()):
        for router in plugin.pegboard_provide_routers(services):
            app.include_router(router)
    install_error_handlers(app, info, [])

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    return asyncio.run(ask())


def test_the_list_names_every_model_with_its_state() -> None:
    listed = get("/v1/models").json()
    assert listed["object"] == "list"
    assert [m["id"] for m in listed["data"]] == ["a", "b"]
    assert [m["status"] for m in listed["data"]] == ["ready_to_load", "loaded"]
    for model in listed["data"]:
        assert (model["object"], model["created"], model["owned_by"]) == (
            "model",
            1700000000,
            "pegboard",
        )
        assert (model["name"], model["revision"]) == (f"Model {model['id']}", 4)


@pytest.mark.parametrize("name", ["b", "org/name", "org%2Fname", "gpt-4o-mini"])
def test_a_model_is_found_by_id_and_alias_slashes_included(name: str) -> None:
    assert get(f"/v1/models/{name}").json() == get("/v1/models").json()["data"][1]


@pytest.mark.parametrize(
    "name", ["c", "B", "%2e%2e", "a%2f..%2f..%2fx", "a/", "%00", "x" * 5000, ""]
)
def test_c88_any_other_name_is_not_found(name: str) -> None:
    response = get(f"/v1/models/{name}")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert len(response.text) < 400


def test_health_tells_process_runtime_device_and_counts() -> None:
    told = get("/health").json()
    assert (told["status"], told["version"], told["device"]) == ("ok", "9", "CPU")
    assert told["models"] == {"registered": 2, "loaded": 1, "preparing": 0, "failed": 0}
    assert (told["models_loaded"], told["loading_count"], told["any_busy"]) == (1, 0, False)
    assert told["devices"] == ["CPU"]
    assert told["process"]["pid"] > 0
    assert told["runtime"]["python"].startswith("3.")
    assert told["uptime_seconds"] >= 0
    assert get("/health/live").json() == {"status": "ok"}


@pytest.mark.parametrize(
    "state",
    [
        ModelState.QUEUED,
        ModelState.DOWNLOADING,
        ModelState.CONVERTING,
        ModelState.FINALIZING,
        ModelState.LOADING,
    ],
)
def test_c84_edge_93_ready_is_503_while_a_model_is_prepared(state: ModelState) -> None:
    response = get("/health/ready", state)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["status"] == "busy"
    assert response.json()["error"]["type"] == "service_unavailable"
    assert get("/health", state).json()["status"] == "busy"
    assert get("/health/live", state).status_code == 200


@pytest.mark.parametrize("state", [ModelState.LOADED, ModelState.ERROR, ModelState.UNLOADING])
def test_ready_otherwise(state: ModelState) -> None:
    response = get("/health/ready", state)
    assert (response.status_code, response.json()["status"]) == (200, "ready")
