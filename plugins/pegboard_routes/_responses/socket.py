"""The Responses API over a WebSocket: creates come as frames, events go as frames.

One response at a time; further creates wait. What a client does not let be stored is
remembered for the connection alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from pegboard_contracts.errors import ApiError, invalid_request, server_error
from pegboard_contracts.http import schema_error
from pegboard_contracts.principal import principal_of
from pegboard_contracts.stores import Turn
from pydantic import ValidationError
from starlette.websockets import WebSocketDisconnect

from pegboard_routes._responses.desk import Desk
from pegboard_routes._responses.live_response import LiveResponse
from pegboard_routes._responses.request import ResponsesRequest

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

logger = logging.getLogger(__name__)

LONGEST_SECONDS = 3600.0
_WAITING_CREATES = 16
_MOST_REMEMBERED = 64
_OF_THE_TRANSPORT = ("type", "stream", "stream_options")


class ResponsesSocket:
    """Serve one connection until it closes, or for `LONGEST_SECONDS`."""

    def __init__(self, socket: WebSocket, desk: Desk) -> None:
        """Keep the parts; nothing is accepted yet."""
        self._socket = socket
        self._desk = desk
        self._principal = principal_of(socket)
        self._frames: asyncio.Queue[str] = asyncio.Queue(_WAITING_CREATES)
        self._chains: OrderedDict[str, tuple[Turn, ...]] = OrderedDict()

    async def serve(self) -> None:
        """Accept, and answer creates in order."""
        await self._socket.accept()
        reading = asyncio.create_task(self._read())
        answering = asyncio.create_task(self._answer())
        tasks = (reading, answering)
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            message = "This connection has been open for an hour; open a new one."
            fault = invalid_request(message, code="websocket_connection_limit_reached")
            with suppress(RuntimeError, WebSocketDisconnect):
                await self._tell(fault)
                await self._socket.close()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        with suppress(WebSocketDisconnect):
            while True:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                await self._frames.put(message.get("text") or _as_text(message.get("bytes")))

    async def _answer(self) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):
            while True:
                frame = await self._frames.get()
                try:
                    await self._create(frame)
                except ApiError as error:
                    await self._tell(error)
                except WebSocketDisconnect:
                    raise
                except Exception:
                    logger.exception("a response over a WebSocket failed")
                    await self._tell(server_error())

    async def _create(self, frame: str) -> None:
        body = _body_of(frame)
        previous = body.previous_response_id
        try:
            order = await self._desk.intake.order(body, self._principal, self._chains)
            if body.generate is False:
                live = await self._desk.warm_up(order)
            else:
                live = await self._desk.begin_order(order, streamed=True)
        except ApiError:
            self._chains.pop(previous or "", None)
            raise
        await self._send(live)
        final = await live.end()
        self._chains[live.id] = order.chain(final.output)
        while len(self._chains) > _MOST_REMEMBERED:
            self._chains.popitem(last=False)

    async def _send(self, live: LiveResponse) -> None:
        try:
            async for event in live.follow():
                await self._socket.send_text(event.payload.decode())
        finally:
            await live.stop("incomplete")

    async def _tell(self, error: ApiError) -> None:
        body = error.body()
        fields: dict[str, Any] = {
            "message": body.message,
            "type": body.type,
            "param": "input" if body.param == "messages" else body.param,
            "code": body.code or body.type,
        }
        told = {"type": "error", "status": error.status, "error": fields}
        await self._socket.send_text(json.dumps(told))


def _as_text(frame: bytes | None) -> str:
    return (frame or b"").decode(errors="replace")


def _no_object() -> ApiError:
    message = "A frame is one JSON object, not nested too deeply."
    return invalid_request(message, code="invalid_json")


def _body_of(frame: str) -> ResponsesRequest:
    try:
        given = json.loads(frame)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise _no_object()
    fields = cast("dict[str, Any]", given)
    if fields.get("type") != "response.create":
        message = "Frames of type 'response.create' are understood here, no others."
        raise invalid_request(message, param="type", code="unknown_event_type")
    for name in _OF_THE_TRANSPORT:
        fields.pop(name, None)
    raw = b""
    try:
        raw = json.dumps(fields).encode()
        body = ResponsesRequest.model_validate_json(raw)
    except ValidationError as error:
        raise schema_error(error, raw, 400) from None
    except RecursionError:
        raise _no_object() from None
    if body.background:
        message = "A background response is created with POST /v1/responses."
        raise invalid_request(message, param="background")
    return body
