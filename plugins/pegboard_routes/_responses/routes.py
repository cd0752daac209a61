"""The routes of the Responses API: thin, each one reads, asks the desk and answers.

Imported when routers are provided: FastAPI is heavy.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter, Request, WebSocket
from pegboard_contracts.errors import ApiError
from pegboard_contracts.http import (
    json_response,
    read_body,
    request_schema,
    response_schema,
    until_disconnect,
)
from pegboard_contracts.principal import principal_of
from pegboard_contracts.server import ServerInfo
from starlette.responses import Response

from pegboard_routes._responses.compacting import compacted
from pegboard_routes._responses.desk import Desk
from pegboard_routes._responses.pages import page_of
from pegboard_routes._responses.request import CompactRequest, InputBody, ResponsesRequest
from pegboard_routes._responses.response_object import (
    CompactedResponse,
    DeletedResponse,
    InputTokens,
    ItemList,
    ResponseObject,
)
from pegboard_routes._responses.settings import Settings
from pegboard_routes._responses.socket import ResponsesSocket
from pegboard_routes._responses.streams import first_event, replayed, streamed

T = TypeVar("T")
PREFIXES = ("/v1", "")


class ResponsesRoutes:
    """Answer requests of this family; each method is an endpoint."""

    def __init__(self, desk: Desk, settings: Settings, info: ServerInfo) -> None:
        """Keep the parts."""
        self._desk = desk
        self._settings = settings
        self._schema_status = info.schema_error_status.get("responses", 400)
        self._interval = info.keepalive_interval

    def router(self) -> APIRouter:
        """Make the router, every path with and without `/v1`."""
        router = APIRouter(tags=["responses"])
        answer = response_schema(ResponseObject, "The response", streamed=True)
        ended = response_schema(ResponseObject, "The response")
        counted = response_schema(InputTokens, "The count")
        compacted_schema = response_schema(CompactedResponse, "The new history")
        gone = response_schema(DeletedResponse, "It is gone")
        listed = response_schema(ItemList, "A page of items")
        creates, counts = request_schema(ResponsesRequest), request_schema(InputBody)
        one = "/responses/{response_id}"
        routes: list[tuple[str, str, Callable[..., Any], str, Any, Any]] = [
            ("POST", "/responses", self.create, "Answer an input", creates, answer),
            ("GET", "/responses", self.needs_upgrade, "Open a WebSocket", None, None),
            ("POST", "/responses/input_tokens", self.count, "Count an input", counts, counted),
            (
                "POST",
                "/responses/compact",
                self.compact,
                "Summarize older turns",
                request_schema(CompactRequest),
                compacted_schema,
            ),
            ("GET", one, self.retrieve, "Get a response or replay its events", None, answer),
            ("DELETE", one, self.delete, "Delete a finished response", None, gone),
            ("POST", f"{one}/cancel", self.cancel, "End a running response", None, ended),
            ("GET", f"{one}/input_items", self.list_input, "List its own input", None, listed),
        ]
        for prefix in PREFIXES:
            for method, path, endpoint, summary, body, responses in routes:
                router.add_api_route(
                    prefix + path,
                    endpoint,
                    methods=[method],
                    summary=summary,
                    response_model=None,
                    openapi_extra=body,
                    responses=responses,
                    include_in_schema=bool(prefix),
                )
            router.add_api_websocket_route(f"{prefix}/responses", self.open_socket)
        return router

    async def open_socket(self, socket: WebSocket) -> None:
        """Serve creates over a WebSocket."""
        await ResponsesSocket(socket, self._desk).serve()

    async def create(self, request: Request) -> Response:
        """Answer an input: whole, as a stream, or as a job."""
        body = await read_body(request, ResponsesRequest, schema_status=self._schema_status)
        principal, desk = principal_of(request), self._desk
        if body.background:
            return json_response(await told(desk.begin_job(body, principal)))
        if not body.stream:
            whole = until_disconnect(request, desk.whole(body, principal))
            return json_response(await told(whole))
        beginning = until_disconnect(request, desk.begin(body, principal, streamed=True))
        return await streamed(await told(beginning), self._interval)

    async def retrieve(self, response_id: str, request: Request) -> Response:
        """Show a response, or stream its events."""
        owner, start = principal_of(request).owner, first_event(request)
        if start is not None:
            return await replayed(self._desk, owner, response_id, start, self._interval)
        return _as_json(await self._desk.get(owner, response_id))

    async def delete(self, response_id: str, request: Request) -> Response:
        """Delete a finished response."""
        await self._desk.delete(principal_of(request).owner, response_id)
        return json_response(DeletedResponse(response_id))

    async def cancel(self, response_id: str, request: Request) -> Response:
        """End a running response; a finished one stays as it is."""
        return _as_json(await self._desk.cancel(principal_of(request).owner, response_id))

    async def list_input(self, response_id: str, request: Request) -> Response:
        """List the items of a response's own input."""
        stored = await self._desk.input_items(principal_of(request).owner, response_id)
        return json_response(page_of(msgspec.json.decode(stored), request))

    async def count(self, request: Request) -> Response:
        """Count the tokens of an input as it would be rendered."""
        body = await read_body(request, InputBody, schema_status=self._schema_status)
        counted = await told(self._desk.count(body, principal_of(request)))
        return json_response(InputTokens(counted))

    async def compact(self, request: Request) -> Response:
        """Summarize the older turns of a history."""
        body = await read_body(request, CompactRequest, schema_status=self._schema_status)
        work = compacted(self._desk, body, principal_of(request), self._settings)
        return json_response(await told(until_disconnect(request, work)))

    async def needs_upgrade(self) -> Response:
        """Tell a plain GET that a WebSocket is offered here."""
        message = "GET here opens a WebSocket; send the upgrade, or POST a response instead."
        error = ApiError(426, message, code="upgrade_required")
        return Response(
            error.envelope(),
            status_code=426,
            headers={"upgrade": "websocket", "connection": "upgrade"},
            media_type="application/json",
        )


def _as_json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


async def told(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`, and call this family's input by its name when it is refused."""
    try:
        return await work
    except ApiError as error:
        if error.param == "messages":
            error.param = "input"
        raise
