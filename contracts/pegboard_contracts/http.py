"""What routes share at the edge: reading a body, answering JSON, noticing a lost client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from pegboard_contracts.errors import ApiError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)


class ClientGoneError(Exception):
    """Say that the client left before its answer; nothing can be sent any more."""


async def read_body(request: Request, model: type[Body], *, schema_status: int) -> Body:
    """Read and validate a JSON body; the content type does not matter.

    Raises `ApiError` with `schema_status` (400 or 422, decisions 1) for malformed JSON and
    for a body that breaks the schema; `param` is the dotted path of the first fault and
    the input is not echoed.
    """
    raw = await request.body()
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise _schema_error(error, schema_status) from None
    except (UnicodeDecodeError, RecursionError):
        message = "The request body is not valid JSON: it must be UTF-8 and not nest too deeply."
        raise ApiError(schema_status, message, code="invalid_json") from None


def _schema_error(error: ValidationError, status: int) -> ApiError:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        message = "The request body is not valid JSON; send one JSON object in UTF-8."
        return ApiError(status, message, code="invalid_json")
    param = ".".join(str(part) for part in first["loc"]) or None
    where = f"'{param}'" if param else "The body"
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    return ApiError(status, f"{where}: {first['msg']}.", param=param, code=code)


def request_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Describe a body for the OpenAPI document: pass it as a route's `openapi_extra`."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def json_response(value: Any, status: int = 200) -> Response:  # noqa: ANN401 - any encodable value
    """Answer with a Struct or plain data, encoded once."""
    from starlette.responses import Response as StarletteResponse  # noqa: PLC0415 - heavy

    return StarletteResponse(
        msgspec.json.encode(value), status_code=status, media_type="application/json"
    )


async def until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` while the client is there; cancel it and raise `ClientGoneError` when it left.

    The body must have been read. Runs on the event loop.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        watch.cancel()
        task.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
