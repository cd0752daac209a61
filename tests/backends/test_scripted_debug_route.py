from __future__ import annotations

from typing import Any, cast

import pytest
from fastapi import FastAPI, Request, Response
from pegboard_backends.scripted import plugin
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import ModelDirectory, ModelEntry, ModelState, ModelView
from pegboard_contracts.principal import Principal, set_principal
from pegboard_contracts.services import Services
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send


class TwoModels:
    """Know one scripted model with a slash in its id, and one other."""

    def models(self) -> list[ModelView]:
        return [self._view("demo/one", "scripted"), self._view("real", "openvino-genai")]

    def _view(self, model: str, kind: str) -> ModelView:
        entry = ModelEntry(id=model, source_model="", backend=kind)
        return ModelView(entry=entry, state=ModelState.LOADED, revision=1, created=0)

    def find(self, name: str) -> ModelView | None:
        return next((view for view in self.models() if view.entry.id == name), None)

    async def load(self, model: str) -> ModelView:
        raise NotImplementedError(model)

    async def unload(self, model: str) -> ModelView:
        raise NotImplementedError(model)

    async def inspect(self, model: str) -> dict[str, Any]:
        return {"requests": [{"prompt": model}], "running": 0}


def client(*, loopback: bool) -> TestClient:
    services = Services()
    services.add(ModelDirectory, TwoModels())
    app = FastAPI()
    for router in plugin().pegboard_provide_routers(services):
        app.include_router(router)

    async def on_error(request: Request, error: Exception) -> Response:
        del request
        assert isinstance(error, ApiError)
        return Response(error.envelope(), error.status)

    app.add_exception_handler(ApiError, on_error)
    return TestClient(_as_principal(app, Principal(loopback=loopback)))


def _as_principal(app: ASGIApp, principal: Principal) -> ASGIApp:
    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        set_principal(cast("dict[str, object]", scope), principal)
        await app(scope, receive, send)

    return guarded


def test_the_requests_of_a_scripted_model_are_shown() -> None:
    answer = client(loopback=True).get("/debug/scripted/demo/one")
    assert answer.json() == {"requests": [{"prompt": "demo/one"}]}


@pytest.mark.parametrize("model", ["real", "nobody"])
def test_other_models_are_not_found(model: str) -> None:
    assert client(loopback=True).get(f"/debug/scripted/{model}").status_code == 404


def test_only_this_machine_may_look() -> None:
    answer = client(loopback=False).get("/debug/scripted/demo/one")
    assert answer.status_code == 403
    assert answer.json()["error"]["type"] == "permission_error"
