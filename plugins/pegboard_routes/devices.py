"""The devices of this machine, as `pegboard devices` shows them."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
from pegboard_contracts.backend import Device, DeviceDirectory
from pegboard_contracts.http import json_response, response_schema
from pegboard_contracts.models import ModelDirectory
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services

if TYPE_CHECKING:
    from fastapi import APIRouter


class DeviceList(msgspec.Struct, frozen=True, kw_only=True):
    """List the devices, usable or not, and what to write to use them.

    `available` are the names of the usable ones, `loaded` tells where each loaded model
    really runs.
    """

    object: Literal["list"] = "list"
    data: list[Device]
    default_device: str
    available: list[str]
    suggestions: list[str]
    supported_examples: list[str]
    loaded: dict[str, str]


class DeviceRoutes(Plugin):
    """Serve `GET /v1/devices`."""

    summary = "GET /v1/devices; ?refresh=true looks again"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the route."""
        from fastapi import APIRouter  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        devices, models = services.get(DeviceDirectory), services.get(ModelDirectory)
        info = services.get(ServerInfo)

        async def list_devices(*, refresh: bool = False) -> Response:
            report = await devices.report(refresh=refresh)
            answer = DeviceList(
                data=report.devices,
                default_device=info.default_device,
                available=[device.name for device in report.devices if device.usable],
                suggestions=report.suggestions,
                supported_examples=report.examples,
                loaded={view.entry.id: view.device for view in models.models() if view.device},
            )
            response = json_response(answer)
            response.headers["cache-control"] = "no-store"
            return response

        router = APIRouter(tags=["devices"])
        router.add_api_route(
            "/v1/devices",
            list_devices,
            methods=["GET"],
            summary="List the devices, and why one cannot be used",
            response_model=None,
            responses=response_schema(DeviceList, "The devices of all active backends"),
        )
        return [router]


plugin = DeviceRoutes
