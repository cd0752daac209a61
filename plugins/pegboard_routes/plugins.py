"""What is plugged in: every plugin's record, as `pegboard plugins list` shows it."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
from pegboard_contracts.http import json_response, response_schema
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.server import PluginDirectory, PluginRecord
from pegboard_contracts.services import Services

if TYPE_CHECKING:
    from fastapi import APIRouter


class PluginList(msgspec.Struct, frozen=True, kw_only=True):
    """List the plugins in the form of OpenAI's lists."""

    object: Literal["list"] = "list"
    data: list[PluginRecord]


class PluginRoutes(Plugin):
    """Serve `GET /v1/plugins`."""

    summary = "GET /v1/plugins, the state of each and why"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the route."""
        from fastapi import APIRouter  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        directory = services.get(PluginDirectory)

        async def plugins() -> Response:
            return json_response(PluginList(data=directory.plugins()))

        router = APIRouter(tags=["plugins"])
        router.add_api_route(
            "/v1/plugins",
            plugins,
            methods=["GET"],
            summary="List the plugins and their states",
            response_model=None,
            responses=response_schema(PluginList, "The plugins by kind and name."),
        )
        return [router]


plugin = PluginRoutes
