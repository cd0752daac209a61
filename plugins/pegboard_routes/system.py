"""Everything at one glance, and a stream of what changes."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

import time
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from pegboard_contracts.errors import ApiError
from pegboard_contracts.lifecycle import EventPage, LifecycleEvent, LifecycleEvents
from pegboard_contracts.models import ModelDirectory
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pegboard_contracts.sse import EventStream, sse_event

from pegboard_routes._model_wire import DeviceState, ModelsState, device_state, models_state
from pegboard_routes._native import add_route, fresh_response

if TYPE_CHECKING:
    from fastapi import APIRouter

_SHOWN_EVENTS = 50
_RETRY_MILLISECONDS = 2000
_LONGEST_CURSOR = 128
_MOST_READERS = 64
_PATIENCE_SECONDS = 60.0


class ModelCount(msgspec.Struct, frozen=True, kw_only=True):
    """Count what a model did since the server began."""

    requests: int


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Count requests, all together and by model."""

    requests: int
    per_model: dict[str, ModelCount]


class SystemStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Show the server: its models as `GET /v1/models/status` does, counters, recent events.

    `events_cursor` is where `GET /v1/system/events?after=` goes on from.
    """

    schema_version: Literal[1] = 1
    generated_at: float
    version: str
    uptime_seconds: float
    device: DeviceState
    models: ModelsState
    metrics: Metrics
    events: list[LifecycleEvent]
    events_cursor: str


class SystemRoutes(Plugin):
    """Serve `GET /v1/system/status` and the stream `GET /v1/system/events`.

    The stream begins behind `Last-Event-ID` or `after`, else with what comes next. A reader
    that missed events gets the event `reset`: it reads the state of all models again. At most
    64 streams are open; a client that takes nothing for a minute is cut off.
    """

    summary = "GET /v1/system/status and the event stream GET /v1/system/events"

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from fastapi import APIRouter, Header, Query  # noqa: PLC0415 - heavy
        from starlette.responses import Response  # noqa: PLC0415 - heavy

        directory, events = services.get(ModelDirectory), services.get(LifecycleEvents)
        info = services.get(ServerInfo)
        readers: set[object] = set()

        async def show_status() -> Response:
            return fresh_response(_status(directory, events.recent(limit=_SHOWN_EVENTS), info))

        async def stream_events(
            after: Annotated[str | None, Query(max_length=_LONGEST_CURSOR)] = None,
            last_event_id: Annotated[str | None, Header()] = None,
        ) -> Response:
            # A browser that connects again sends the header with the URL it began with.
            cursor = (last_event_id or after or "")[:_LONGEST_CURSOR]
            if len(readers) >= _MOST_READERS:
                raise _too_many()
            stream = EventStream(
                _frames(events, cursor, readers),
                on_error=_last_words,
                keepalive_interval=info.keepalive_interval,
                done=b"",
                patience=_PATIENCE_SECONDS,
            )
            return stream.as_response()

        router = APIRouter(prefix="/v1/system", tags=["system"])
        summary = "Show models, progress, counters and recent events"
        add_route(router, "GET", "/status", show_status, summary=summary, answer=SystemStatus)
        add_route(
            router,
            "GET",
            "/events",
            stream_events,
            summary="Follow the changes of all models as server-sent events",
            answer=LifecycleEvent,
            streamed=True,
        )
        return [router]


def _status(directory: ModelDirectory, page: EventPage, info: ServerInfo) -> SystemStatus:
    views, now = directory.models(), time.time()
    return SystemStatus(
        generated_at=now,
        version=info.version,
        uptime_seconds=round(now - (info.started_at or now), 3),
        device=device_state(views, info),
        models=models_state(views),
        metrics=Metrics(
            requests=sum(view.requests for view in views),
            per_model={view.entry.id: ModelCount(requests=view.requests) for view in views},
        ),
        events=page.events,
        events_cursor=page.latest,
    )


async def _frames(
    events: LifecycleEvents, cursor: str, readers: set[object]
) -> AsyncGenerator[bytes, None]:
    """Frame what comes behind the cursor, or from now on; who connects again misses nothing."""
    reader = object()
    readers.add(reader)
    source: AsyncGenerator[LifecycleEvent, None] | None = None
    beginning = f"retry: {_RETRY_MILLISECONDS}\n"
    if not cursor:
        cursor = events.recent(limit=1).latest
        beginning += f"id: {cursor}\n"
    try:
        yield beginning.encode() + b"\n"
        source = events.follow(cursor)
        async for event in source:
            yield _frame(event)
    finally:
        readers.discard(reader)
        if source is not None:
            await source.aclose()


def _frame(event: LifecycleEvent) -> bytes:
    name = "reset" if event.data.get("reset_required") else event.type
    return f"id: {event.id}\n".encode() + sse_event(name, msgspec.json.encode(event))


def _too_many() -> ApiError:
    message = (
        f"{_MOST_READERS} clients follow the events already. Close one, or ask "
        "GET /v1/system/status from time to time."
    )
    return ApiError(503, message, code="too_many_streams", retry_after=10)


def _last_words(fault: ApiError) -> Sequence[bytes]:
    return [sse_event("error", fault.envelope())]


plugin = SystemRoutes
