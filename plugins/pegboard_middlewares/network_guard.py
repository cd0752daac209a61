"""Who may talk to this server: decided before routing and before a body is read."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ipaddress import ip_network
from typing import TYPE_CHECKING, cast

from pegboard_contracts.errors import ApiError
from pegboard_contracts.http import header_values, send_error
from pegboard_contracts.plugin import Plugin, PluginSettings, hookimpl
from pegboard_contracts.principal import ANONYMOUS, Principal, set_principal
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pegboard_contracts.start_send import AddedHeaders
from pydantic import Field, field_validator

from pegboard_middlewares._addresses import (
    client_address,
    is_loopback_name,
    is_wildcard,
    parse_address,
    split_host,
    split_origin,
)
from pegboard_middlewares._api_keys import KeyRing, Throttle, offered_keys

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

logger = logging.getLogger(__name__)

_OPEN_TO_LOOPBACK = {"/health", "/health/live", "/health/ready"}
_METHODS = b"GET, POST, PUT, PATCH, DELETE, OPTIONS"
_VARY = (b"vary", b"Origin")


class Settings(PluginSettings):
    """Say who may ask under which names."""

    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="Further names this server is called by in the Host header.",
        json_schema_extra={"flag": "--allowed-hosts"},
    )
    cors_origins: tuple[str, ...] = Field(
        default=(),
        description="Browser origins that may call this server, as scheme://host:port; * is any.",
        json_schema_extra={"flag": "--cors-origins", "env": ["OV_LLM_CORS_ORIGINS"]},
    )
    trusted_proxies: tuple[str, ...] = Field(
        default=(),
        description="Addresses or networks of proxies whose X-Forwarded-For is believed.",
        json_schema_extra={"flag": "--trusted-proxies"},
    )
    failed_key_limit: int = Field(
        default=10, ge=1, description="Wrong keys a client may show within the window."
    )
    failed_key_window: float = Field(
        default=300.0, gt=0, description="Seconds after which a wrong key is forgotten."
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            ip_network(value, strict=False)
        return values

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            if value != "*" and split_origin(value) is None:
                raise ValueError("an origin is scheme://host or scheme://host:port")
        return values


class NetworkGuard(Plugin):
    """Guard loopback, Host, Origin and keys; answer CORS for configured origins."""

    summary = "Loopback, Host, Origin and key checks before anything else"
    after = ("request_id",)
    required = True
    Settings = Settings

    @hookimpl
    def pegboard_provide_middlewares(
        self, services: Services
    ) -> Sequence[Callable[[ASGIApp], ASGIApp]]:
        """Provide the middleware."""
        info, settings = services.get(ServerInfo), cast("Settings", self.settings)
        return [lambda app: NetworkGuardMiddleware(app, info, settings)]

    @hookimpl
    def pegboard_provide_lifespan(self, services: Services) -> AbstractAsyncContextManager[None]:
        """Warn of a bind that nobody but this machine will be served on."""
        return _warning(services.get(ServerInfo))


@asynccontextmanager
async def _warning(info: ServerInfo) -> AsyncGenerator[None, None]:
    if not info.api_keys and not is_loopback_name(info.host):
        logger.warning(
            "Listening on %s without an API key: requests from other machines are answered "
            "with 403. Give --api-key to serve them.",
            info.host or "every interface",
        )
    yield


class NetworkGuardMiddleware:
    """Decide in this order: address, Host, Origin, preflight, key."""

    def __init__(
        self,
        app: ASGIApp,
        info: ServerInfo,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wrap `app`."""
        self._app = app
        self._keys = KeyRing(info.api_keys)
        self._throttle = Throttle(settings.failed_key_limit, settings.failed_key_window, clock)
        self._proxies = [ip_network(value, strict=False) for value in settings.trusted_proxies]
        self._any_address = is_wildcard(info.host)
        self._hosts = {name.lower().rstrip(".") for name in (info.host, *settings.allowed_hosts)}
        self._any_origin = "*" in settings.cors_origins
        self._origins = {split_origin(value) for value in settings.cors_origins} - {None}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in under its principal, or answer it here."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        origin = b"".join(header_values(scope, b"origin"))
        shared = bool(origin) and self._is_shared(origin)
        if shared:
            send = _with_cors(send, origin)
        try:
            loopback, client = self._check_address(scope)
            self._check_host(scope)
            self._check_origin(scope, origin, shared=shared)
            if shared and _is_preflight(scope):
                await _answer_preflight(scope, send)
                return
            owner = self._check_key(scope, client, loopback=loopback)
        except ApiError as error:
            await send_error(scope, send, error)
            return
        set_principal(cast("dict[str, object]", scope), Principal(owner, loopback))
        await self._app(scope, receive, send)

    def _check_address(self, scope: Scope) -> tuple[bool, str]:
        peer = scope["client"][0] if scope.get("client") else None
        address = client_address(peer, header_values(scope, b"x-forwarded-for"), self._proxies)
        loopback = address is not None and address.is_loopback
        if not loopback and not self._keys:
            message = "This server answers only its own machine until an API key is configured."
            raise ApiError(403, message, code="network_access_denied")
        return loopback, str(address)

    def _check_host(self, scope: Scope) -> None:
        hosts = header_values(scope, b"host")
        named = split_host(hosts[0].decode("latin-1"), "http") if len(hosts) == 1 else None
        if named is not None and self._is_own_name(named[0]):
            return
        message = "The Host header names another server; --allowed-hosts adds names to this one."
        raise ApiError(403, message, code="host_not_allowed")

    def _is_own_name(self, name: str) -> bool:
        if is_loopback_name(name) or name in self._hosts:
            return True
        return self._any_address and parse_address(name) is not None

    def _is_shared(self, origin: bytes) -> bool:
        named = split_origin(origin.decode("latin-1"))
        return self._any_origin or (named is not None and named in self._origins)

    def _check_origin(self, scope: Scope, origin: bytes, *, shared: bool) -> None:
        if shared:
            return
        if origin:
            named = split_origin(origin.decode("latin-1"))
            host = header_values(scope, b"host")[0].decode("latin-1")
            allowed = named is not None and split_host(host, named[0]) == named[1]
        else:
            sites = header_values(scope, b"sec-fetch-site")
            allowed = self._any_origin or b"cross-site" not in sites
        if not allowed:
            message = "Pages of this origin may not call this server; --cors-origins allows them."
            raise ApiError(403, message, code="origin_not_allowed")

    def _check_key(self, scope: Scope, client: str, *, loopback: bool) -> str:
        if not self._keys:
            return ANONYMOUS
        offered = offered_keys(scope["headers"])
        owners = [owner for key in offered if (owner := self._keys.owner(key)) is not None]
        if owners:
            self._throttle.forget(client)
            return owners[0]
        if loopback and scope["type"] == "http" and scope["path"] in _OPEN_TO_LOOPBACK:
            return ANONYMOUS
        wait = self._throttle.fail(client)
        if wait is not None:
            message = f"Too many requests without a valid API key; try again in {wait:.0f} s."
            raise ApiError(429, message, code="too_many_failed_keys", retry_after=wait)
        message = "The API key is missing or wrong; send it as 'Authorization: Bearer KEY'."
        raise ApiError(401, message, code="invalid_api_key")


def _is_preflight(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] == "OPTIONS"
        and bool(header_values(scope, b"access-control-request-method"))
    )


async def _answer_preflight(scope: Scope, send: Send) -> None:
    headers = [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", b"600")]
    wanted = b", ".join(header_values(scope, b"access-control-request-headers"))
    if wanted:
        headers.append((b"access-control-allow-headers", wanted))
    if header_values(scope, b"access-control-request-private-network"):
        headers.append((b"access-control-allow-private-network", b"true"))
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _with_cors(send: Send, origin: bytes) -> Send:
    exposed = (b"access-control-expose-headers", b"X-Request-ID, Retry-After")
    return AddedHeaders(send, (b"access-control-allow-origin", origin), exposed, _VARY)


plugin = NetworkGuard
