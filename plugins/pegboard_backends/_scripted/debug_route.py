"""The route that shows what a scripted engine received."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pegboard_contracts.errors import ApiError
from pegboard_contracts.http import json_response
from pegboard_contracts.models import ModelDirectory
from pegboard_contracts.principal import principal_of
from pegboard_contracts.services import Services


def debug_router(services: Services, model_backends: tuple[str, ...]) -> APIRouter:
    """Make the router of `GET /debug/scripted/{model}`."""
    router = APIRouter()
    directory = services.get(ModelDirectory)

    @router.get("/debug/scripted/{model:path}", tags=["debug"])
    async def scripted_requests(model: str, request: Request) -> Response:
        """Show the last hundred requests of a scripted model, oldest first.

        Only from this machine. Source: the fixed interface "The scripted backend".
        """
        if not principal_of(request).loopback:
            message = "The debug routes answer only requests from the server's own machine."
            raise ApiError(403, message, code="loopback_only")
        view = directory.find(model)
        if view is None or view.entry.backend not in model_backends:
            message = f"There is no scripted model '{model[:80]}'. GET /v1/models lists what is."
            raise ApiError(404, message, param="model", code="model_not_found")
        state = await directory.inspect(view.entry.id)
        return json_response({"requests": state["requests"]})

    return router
