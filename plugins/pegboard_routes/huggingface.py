"""The account at the model hub: its token goes in and never comes out."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from pegboard_contracts.errors import (
    ApiError,
    ErrorBody,
    invalid_request,
    model_not_found,
    not_supported,
)
from pegboard_contracts.http import read_body
from pegboard_contracts.hub import AccessReport, AccountState, AccountStatus, ModelHub
from pegboard_contracts.models import ModelDirectory
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pydantic import Field, SecretStr

from pegboard_routes._library_requests import address_of
from pegboard_routes._model_wire import shown_source
from pegboard_routes._native import ModelName, NativeRequest, add_route, fresh_response

if TYPE_CHECKING:
    from fastapi import APIRouter

_HUB = "hf:"
_REFUSALS: dict[AccountState, tuple[str, str]] = {
    "not_configured": ("hf_token_missing", "No token of the hub is configured."),
    "invalid_token": ("hf_token_invalid", "The hub does not accept the configured token."),
    "rate_limited": ("hf_rate_limited", "The hub asks to wait before it is asked again."),
    "network_error": ("hf_network_error", "The hub could not be reached."),
}


class TokenRequest(NativeRequest):
    """Carry a read token of the hub; it is verified and then kept."""

    token: SecretStr = Field(min_length=11, max_length=503, description="The token.")


class PreflightRequest(NativeRequest):
    """Name a registered model or a repository of the hub, one of the two."""

    model_id: ModelName | None = Field(default=None, description="Id of a registered model.")
    source_model: str | None = Field(
        default=None, min_length=1, max_length=240, description="OWNER/REPO at the hub."
    )


class Account(AccountStatus, frozen=True, kw_only=True):
    """Show the account and what happened to it."""

    message: str


class RemovedToken(Account, frozen=True, kw_only=True):
    """Tell whether there was a stored token to remove."""

    removed: bool


class DeniedAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Tell that a model cannot be downloaded, in the envelope, and what to do in `access`."""

    error: ErrorBody
    access: AccessReport


class HuggingFaceRoutes(Plugin):
    """Serve the routes under `/v1/huggingface`; without the plugin `hub` they answer 501."""

    summary = "GET /v1/huggingface/status, POST token, test and preflight, DELETE token"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from fastapi import APIRouter, Request  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        found, directory = services.find(ModelHub), services.get(ModelDirectory)
        schema_status = services.get(ServerInfo).schema_error_status.get("native", 422)

        def hub() -> ModelHub:
            if found is None:
                message = "The plugin 'hub' is not active, so there is no account at the hub."
                raise not_supported("huggingface", message)
            return found

        async def show_status() -> Response:
            return fresh_response(hub().status())

        async def set_token(request: Request) -> Response:
            asked = hub()
            body = await read_body(request, TokenRequest, schema_status=schema_status)
            status = await asked.set_token(body.token.get_secret_value())
            return fresh_response(_account(status, "The token is verified and kept."))

        async def test(request: Request) -> Response:
            del request
            return fresh_response(_tested(await hub().test()))

        async def remove_token() -> Response:
            status, removed = await hub().remove_token()
            return fresh_response(_removed(status, removed=removed))

        async def preflight(request: Request) -> Response:
            asked = hub()
            body = await read_body(request, PreflightRequest, schema_status=schema_status)
            source = _source(body, directory)
            if not source.startswith(_HUB):
                return fresh_response(_local(source))
            report = await asked.preflight(source.removeprefix(_HUB))
            if report.granted:
                return fresh_response(report)
            fault = ApiError(409, report.message, param="source_model", code=report.code)
            return fresh_response(DeniedAccess(error=fault.body(), access=report), fault.status)

        router = APIRouter(prefix="/v1/huggingface", tags=["huggingface"])
        summary = "Show the account as it was last seen"
        add_route(router, "GET", "/status", show_status, summary=summary, answer=AccountStatus)
        summary = "Verify a read token with the hub and keep it"
        add_route(
            router, "POST", "/token", set_token, summary=summary, body=TokenRequest, answer=Account
        )
        summary = "Remove the stored token, never one of the environment"
        add_route(router, "DELETE", "/token", remove_token, summary=summary, answer=RemovedToken)
        summary = "Verify the configured token again"
        add_route(router, "POST", "/test", test, summary=summary, answer=Account)
        add_route(
            router,
            "POST",
            "/preflight",
            preflight,
            summary="Check whether a model can be downloaded; 409 tells why not",
            body=PreflightRequest,
            answer=AccessReport,
        )
        return [router]


def _account(status: AccountStatus, message: str) -> Account:
    return Account(message=message, **msgspec.structs.asdict(status))


def _removed(status: AccountStatus, *, removed: bool) -> RemovedToken:
    message = "The stored token is removed." if removed else "There was no stored token."
    if status.source == "environment":
        message += " A token of the server's environment is still in use."
    return RemovedToken(message=message, removed=removed, **msgspec.structs.asdict(status))


def _tested(status: AccountStatus) -> Account:
    if status.status not in _REFUSALS:
        return _account(status, "The hub accepts the configured token.")
    code, message = _REFUSALS[status.status]
    raise ApiError(409, f"{message} Give one with POST /v1/huggingface/token.", code=code)


def _source(body: PreflightRequest, directory: ModelDirectory) -> str:
    if (body.model_id is None) == (body.source_model is None):
        message = "Name either 'model_id' or 'source_model'."
        raise invalid_request(message, param="source_model")
    if body.model_id is None:
        source = str(body.source_model).strip()
        known = source.startswith(_HUB)
        return source if known else f"{_HUB}{source}"
    view = directory.find(body.model_id)
    if view is None:
        raise model_not_found(body.model_id)
    return address_of(view.entry.source_model)


def _local(source: str) -> AccessReport:
    return AccessReport(
        granted=True,
        code="hf_access_granted",
        message="The model does not come from the hub; there is nothing to ask for.",
        source_model=shown_source(source),
        access_type="local",
    )


plugin = HuggingFaceRoutes
