"""What an output format compiles to, which keywords are enforced, and an example."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Constraint, OutputFormat
from pegboard_contracts.http import (
    RequestModel,
    json_response,
    read_body,
    request_schema,
    response_schema,
    until_disconnect,
)
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pegboard_contracts.structured_outputs import OutputInspector, OutputReport
from pydantic import ConfigDict, Field

from pegboard_routes._output_formats import ResponseFormat, of_response_format

if TYPE_CHECKING:
    from fastapi import APIRouter


class CheckRequest(RequestModel):
    """Name an output format: its kind and input, or a `response_format` as chat has it.

    With `model`, that model's engine compiles it and tells what it costs.
    """

    model_config = ConfigDict(extra="forbid")

    kind: str | None = Field(default=None, min_length=1)
    value: Any = None
    response_format: ResponseFormat | None = None
    model: str | None = Field(default=None, min_length=1)


class CheckedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Tell what an output format compiles to.

    `enforced` and `unenforced` are keywords, those not enforced with their paths. `strict`
    says whether a strict request would be served. Times are milliseconds of processor time
    on the model that was named; `example` is one of the shortest answers.
    """

    kind: str
    constraint: Constraint
    strict: bool
    enforced: tuple[str, ...]
    unenforced: tuple[str, ...]
    example: str | None
    model: str | None
    compile_ms: float | None
    step_ms: float | None


class StructuredOutputsRoute(Plugin):
    """Serve `POST /v1/structured_outputs/check`."""

    summary = "POST /v1/structured_outputs/check: what a schema compiles to"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the route."""
        from fastapi import APIRouter, Request  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        inspector = services.get(OutputInspector)
        status = services.get(ServerInfo).schema_error_status.get("native", 422)

        async def check_structured_output(request: Request) -> Response:
            body = await read_body(request, CheckRequest, schema_status=status)
            wanted = _wanted(body, status)
            report = await until_disconnect(request, inspector.inspect(wanted, body.model))
            return json_response(_checked(wanted, report))

        router = APIRouter(tags=["structured outputs"])
        router.add_api_route(
            "/v1/structured_outputs/check",
            check_structured_output,
            methods=["POST"],
            summary="Check an output format",
            response_model=None,
            openapi_extra=request_schema(CheckRequest),
            responses=response_schema(CheckedOutput, "What the format compiles to"),
        )
        return [router]


def _wanted(body: CheckRequest, status: int) -> OutputFormat:
    given = of_response_format(body.response_format)
    if (given is None) == (body.kind is None):
        message = "Give either 'kind' with its 'value', or a 'response_format' that is not text."
        raise ApiError(status, message, param="kind", code="invalid_value")
    return given or OutputFormat(kind=body.kind or "", value=body.value, param="value")


def _checked(wanted: OutputFormat, report: OutputReport) -> CheckedOutput:
    compiled, cost = report.compiled, report.cost
    return CheckedOutput(
        kind=wanted.kind,
        constraint=compiled.constraint,
        strict=not compiled.unenforced,
        enforced=compiled.enforced,
        unenforced=compiled.unenforced,
        example=report.example,
        model=report.model,
        compile_ms=None if cost is None else round(cost.compile_seconds * 1000, 3),
        step_ms=None if cost is None else round(cost.step_seconds * 1000, 3),
    )


plugin = StructuredOutputsRoute
