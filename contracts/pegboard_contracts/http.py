"""What routes share at the edge: reading a body, answering, noticing a lost client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from pegboard_contracts.errors import ApiError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Scope, Send

T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)

_LONGEST_PARAM = 200

request_id: ContextVar[str] = ContextVar("pegboard_request_id", default="-")
"""The id of the request being answered, for logs; set by the middleware of that name."""


class ClientGoneError(Exception):
    """Say that the client left before its answer; nothing can be sent any more."""


class RequestModel(BaseModel):
    """Be the base of request bodies and of their parts.

    Scalars are strict (`"5"` and `true` are no integers), unknown fields are ignored.
    Optional fields are `| None = None`, so that null equals absent (decision 7).
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", defer_build=True)


def _portable(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False)
        msgspec.msgpack.encode(value)
    except (ValueError, OverflowError):
        raise ValueError("numbers must be finite and integers must fit into 64 bits") from None
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(_portable)]
"""A JSON object of any content that can cross every process boundary and come back."""


async def read_body(request: Request, model: type[Body], *, schema_status: int) -> Body:
    """Read and validate a JSON body; the content type does not matter.

    Raises `ApiError` with `schema_status` (400 or 422, decision 1) for malformed JSON and
    for a body that breaks the schema; `param` is the dotted path of the deepest fault and
    the input is not echoed.
    """
    raw = await request.body()
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise schema_error(error, raw, schema_status) from None
    except (UnicodeDecodeError, RecursionError):
        raise _invalid_json(schema_status) from None


def schema_error(error: ValidationError, raw: bytes, status: int) -> ApiError:
    """Turn pydantic's findings on the JSON text `raw` into one error that echoes no input."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    if faults[0]["type"] == "json_invalid":
        return _invalid_json(status)
    document = json.loads(raw)
    paths = [_path_in(document, fault) for fault in faults]
    deepest = max(range(len(faults)), key=lambda index: (len(paths[index]), -index))
    fault = faults[deepest]
    param = ".".join(paths[deepest])[:_LONGEST_PARAM] or None
    where = f"'{param}'" if param else "The body"
    code = "missing_required_parameter" if fault["type"] == "missing" else "invalid_value"
    return ApiError(status, f"{where}: {_said(fault)}.", param=param, code=code)


def _invalid_json(status: int) -> ApiError:
    message = "The request body is not valid JSON: send one object, UTF-8, not nested too deeply."
    return ApiError(status, message, code="invalid_json")


def _said(fault: ErrorDetails) -> str:
    if fault["type"] == "union_tag_invalid":  # its own message repeats the input
        return "Input has an unknown type"
    return fault["msg"].removeprefix("Value error, ").rstrip(".")


def _path_in(document: Any, fault: ErrorDetails) -> list[str]:  # noqa: ANN401 - any JSON
    """Keep the steps that lead through the document; pydantic adds names of union members."""
    steps: list[str] = []
    for number, step in enumerate(fault["loc"], start=1):
        absent = fault["type"] == "missing" and number == len(fault["loc"])
        if isinstance(document, dict) and (step in document or absent):
            document = cast("dict[object, object]", document).get(step)
        elif isinstance(document, list) and isinstance(step, int):
            document = cast("list[object]", document)[step]
        else:
            continue
        steps.append(str(step))
    return steps


def request_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Describe a body for the OpenAPI document: pass it as a route's `openapi_extra`."""
    schema = _inlined(model.model_json_schema())
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def response_schema(
    answer: Any,  # noqa: ANN401 - a type
    description: str,
    *,
    streamed: bool = False,
) -> dict[int | str, Any]:
    """Describe the 200 of a route for the OpenAPI document: pass it as `responses`."""
    content: dict[str, Any] = {
        "application/json": {"schema": _inlined(msgspec.json.schema(answer))}
    }
    if streamed:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {200: {"description": description, "content": content}}


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Put every definition where it is referred to: a route's schema stands alone."""
    definitions: dict[str, Any] = schema.pop("$defs", {})

    def expand(node: Any) -> Any:  # noqa: ANN401 - any JSON
        if isinstance(node, list):
            return [expand(item) for item in cast("list[object]", node)]
        if not isinstance(node, dict):
            return node
        fields = cast("dict[str, Any]", node)
        if "$ref" in fields:
            return expand(definitions[fields["$ref"].rpartition("/")[2]])
        return {key: expand(value) for key, value in fields.items()}

    expanded: dict[str, Any] = expand(schema)
    return expanded


def json_response(value: Any, status: int = 200) -> Response:  # noqa: ANN401 - any encodable value
    """Answer with a Struct or plain data, encoded once."""
    from starlette.responses import Response as StarletteResponse  # noqa: PLC0415 - heavy

    return StarletteResponse(
        msgspec.json.encode(value), status_code=status, media_type="application/json"
    )


async def send_error(
    scope: Scope,
    send: Send,
    error: ApiError,
    *,
    headers: Iterable[tuple[bytes, bytes]] = (),
    more_body: bool = False,
) -> None:
    """Answer with the envelope from plain ASGI, where no route runs.

    Serves HTTP, and a WebSocket's handshake: there without the envelope when the server
    cannot send one. `more_body` leaves the answer open for one closing message.
    """
    body = error.envelope()
    prefix = "http.response"
    if scope["type"] == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008})
            return
        prefix = "websocket.http.response"
    own = [(name.encode(), value.encode()) for name, value in error.headers().items()]
    fixed = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send(
        {"type": f"{prefix}.start", "status": error.status, "headers": [*fixed, *own, *headers]}
    )
    await send({"type": f"{prefix}.body", "body": body, "more_body": more_body})


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """Return every value of a request header; `name` is in lower case."""
    headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
    return [value for key, value in headers if key == name]


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
