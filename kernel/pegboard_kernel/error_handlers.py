"""One error envelope for everything: unknown URLs, wrong methods, bad bodies and bugs."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pegboard_contracts.errors import ApiError, server_error
from pegboard_contracts.http import ClientGoneError
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.start_send import StartSend, offer_outer_send
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

_RESPONSES = ("/v1/responses", "/v1/conversations")
_OPENAI = ("/v1/chat", "/v1/completions", "/v1/embeddings", "/v1/rerank")


def install_error_handlers(app: FastAPI, info: ServerInfo, paths: Sequence[str]) -> None:
    """Answer every fault inside `app` with the envelope; `paths` are for its hints."""

    async def api_error(request: Request, error: Exception) -> Response:
        del request
        return _respond(cast("ApiError", error))

    async def invalid(request: Request, error: Exception) -> Response:
        status = info.schema_error_status.get(_family(request.url.path), 422)
        return _respond(_schema_error(cast("RequestValidationError", error), status))

    async def http_error(request: Request, error: Exception) -> Response:
        fault = cast("HTTPException", error)
        return _respond(_routing_error(request, fault, paths), dict(fault.headers or {}))

    async def client_gone(request: Request, error: Exception) -> Response:
        del request, error
        return _Nothing()

    async def bug(request: Request, error: Exception) -> Response:
        del request, error  # it is raised again, and logged, behind this
        return _respond(server_error())

    app.add_exception_handler(ApiError, api_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(ClientGoneError, client_gone)
    app.add_exception_handler(Exception, bug)


class ErrorEnvelope:
    """Answer what a layer of the application raises, as plain ASGI.

    An exception after the response has begun can only be logged; the connection is closed
    by the server then.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the layer; raise nothing but what ends the task."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        watched = _WatchedStart(send)
        offer_outer_send(scope, watched)
        try:
            await self._app(scope, receive, watched)
        except ClientGoneError:
            return
        except Exception as error:
            if not isinstance(error, ApiError):
                logger.exception("%s %s failed", scope["method"], scope["path"])
            if not watched.started:
                fault = error if isinstance(error, ApiError) else server_error()
                await _respond(fault)(scope, receive, send)


class _WatchedStart(StartSend):
    """Know whether a response has begun."""

    started = False

    def begin(self, start: Message) -> Message:
        self.started = True
        return start


class _Nothing(Response):
    """Send nothing: nobody is there to read it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive, send


def _respond(error: ApiError, headers: dict[str, str] | None = None) -> Response:
    return Response(
        error.envelope(),
        status_code=error.status,
        headers={**(headers or {}), **error.headers()},
        media_type="application/json",
    )


def _family(path: str) -> str:
    if path.startswith(_RESPONSES):
        return "responses"
    return "openai" if path.startswith(_OPENAI) else "native"


def _schema_error(error: RequestValidationError, status: int) -> ApiError:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        message = "The request body is not valid JSON; send one JSON object in UTF-8."
        return ApiError(status, message, code="invalid_json")
    param = ".".join(str(part) for part in first["loc"][1:]) or None
    where = f"'{param}'" if param else f"The {first['loc'][0]}"
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    return ApiError(status, f"{where}: {first['msg']}.", param=param, code=code)


def _routing_error(request: Request, error: HTTPException, paths: Sequence[str]) -> ApiError:
    path, method = request.url.path[:200], request.method
    if error.status_code == 404:
        return ApiError(404, f"There is no {path} here.{_hint(path, paths)}", code="unknown_url")
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow") or (error.headers or {}).get("allow", "")
        use = f"; use {' or '.join(sorted(allowed.split(', ')))}" if allowed else ""
        return ApiError(405, f"{path} takes no {method}{use}.", code="method_not_allowed")
    return ApiError(error.status_code, error.detail or HTTPStatus(error.status_code).phrase)


def _hint(path: str, paths: Sequence[str]) -> str:
    for variant in (path.rstrip("/"), "/v1" + path.rstrip("/"), path.replace("/v1/v1/", "/v1/")):
        if variant != path and variant in paths:
            return f" Did you mean {variant}?"
    close = difflib.get_close_matches(path, paths, n=1, cutoff=0.75)
    if close:
        return f" Did you mean {close[0]}?"
    return " GET /openapi.json lists every route."
