"""The one error type and the one envelope of every route."""

from __future__ import annotations

from math import ceil
from typing import Any

import msgspec

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    501: "not_supported_error",
    503: "service_unavailable",
}


class ErrorBody(msgspec.Struct, frozen=True):
    """Carry the four keys of an error, all always present on the wire."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorEnvelope(msgspec.Struct, frozen=True):
    """Wrap an error the way every SDK reads it."""

    error: ErrorBody


class ApiError(Exception):
    """Say who is at fault, what went wrong and what to do next.

    `status` decides the `type` unless one is given. The message never holds a secret, a
    prompt, a rejected input or a local path. `retry_after` is in seconds.
    """

    def __init__(  # noqa: PLR0913 - the four wire keys, the status and the retry header
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        type: str | None = None,  # noqa: A002 - the wire's own word
        retry_after: float | None = None,
    ) -> None:
        """Keep the parts; nothing is sent yet."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.type = type or _TYPES.get(
            status, "server_error" if status >= 500 else "invalid_request_error"
        )
        self.retry_after = retry_after

    def body(self) -> ErrorBody:
        """Return the four wire keys."""
        return ErrorBody(self.message, self.type, self.param, self.code)

    def envelope(self) -> bytes:
        """Encode the JSON envelope."""
        return msgspec.json.encode(ErrorEnvelope(self.body()))

    def headers(self) -> dict[str, str]:
        """Return the headers that belong to the error: when to retry, how to authenticate."""
        if self.status == 401:
            return {"www-authenticate": "Bearer"}
        if self.retry_after is None and self.status not in {429, 503}:
            return {}
        return {"retry-after": str(max(1, ceil(self.retry_after or 1)))}


def invalid_request(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """Make a 400: well-formed, but it cannot be served as asked."""
    return ApiError(400, message, param=param, code=code)


def not_supported(field: str, message: str | None = None) -> ApiError:
    """Make a 501 that names the field nobody here can honour yet."""
    text = message or f"'{field}' is not supported by this server yet; leave it out."
    return ApiError(501, text, param=field, code="not_supported")


def model_not_found(model: str) -> ApiError:
    """Make the 404 of an unknown model; the name is shortened to what fits a line."""
    message = f"The model '{model[:80]}' does not exist here. GET /v1/models lists what does."
    return ApiError(404, message, param="model", code="model_not_found")


def server_error(message: str = "The server failed to answer; see its log.") -> ApiError:
    """Make a 500 whose cause is in the log under the request id."""
    return ApiError(500, message, code="internal_error")


def error_from_wire(fields: dict[str, Any]) -> ApiError:
    """Rebuild an error that crossed a process boundary as `error_to_wire` wrote it."""
    return ApiError(
        int(fields["status"]),
        str(fields["message"]),
        code=fields.get("code"),
        param=fields.get("param"),
        type=fields.get("type"),
        retry_after=fields.get("retry_after"),
    )


def error_to_wire(error: ApiError) -> dict[str, Any]:
    """Flatten an error into plain data."""
    return {
        "status": error.status,
        "message": error.message,
        "code": error.code,
        "param": error.param,
        "type": error.type,
        "retry_after": error.retry_after,
    }
