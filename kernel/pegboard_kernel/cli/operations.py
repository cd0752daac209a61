"""Operations of a running server: followed to their end, and cancelled by their exact id."""

from __future__ import annotations

import queue
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pegboard_kernel.cli.server_client import ServerClient, ServerError

Model = dict[str, Any]
"""A model as `GET /v1/models/status` shows it."""

ENDED = ("idle", "ready", "cancelled", "error")
"""Phases in which no operation runs."""

_PREPARING = ("queued", "downloading", "converting", "finalizing", "loading", "unloading")
_ASK_SECONDS = 2.0
_ASK_SECONDS_WITHOUT_STREAM = 0.5
_SILENCE_SECONDS = 60.0
_PATIENCE_SECONDS = 15.0


def status_of(client: ServerClient, model: str) -> Model:
    """Return what the server shows of a model, by id or alias; raises `ServerError`."""
    for shown in client.get("/v1/models/status")["models"]["available"]:
        if model == shown["id"] or model in shown["aliases"]:
            return dict(shown)
    raise ServerError(f"The model '{model}' does not exist.", 404, "model_not_found")


def running_operation(shown: Model) -> str | None:
    """Return the id of the operation that runs on a model, or nothing."""
    progress = shown["progress"]
    return None if progress["phase"] in ENDED else str(progress["operation_id"])


def is_busy(shown: Model) -> bool:
    """Tell whether something goes on that ends in another state."""
    return shown["status"] in _PREPARING or running_operation(shown) is not None


def follow(client: ServerClient, model: str) -> Iterator[Model]:
    """Yield a model each time something is told of it, until nothing goes on any more.

    The server's event stream tells; where it is silent or cut, the status is asked for.
    Raises `ServerError` when the server is gone for some seconds, or the model.
    """
    events = _Events(client)
    shown = status_of(client, model)
    yield shown
    while is_busy(shown):
        told = events.next(shown["id"])
        if told is not None and told.get("type") == "progress":
            # Only the numbers have changed, and the event carries them.
            shown = shown | {"progress": shown["progress"] | told["data"]["progress"]}
        else:
            shown = _ask_patiently(client, shown["id"])
        yield shown


def _ask_patiently(client: ServerClient, model: str) -> Model:
    """Ask for the status, again for some seconds when the server is not reached."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return status_of(client, model)
        except ServerError as error:
            if error.status or time.monotonic() > end:
                raise
        time.sleep(_ASK_SECONDS_WITHOUT_STREAM)


@dataclass
class _Events:
    """Read the event stream on a thread, which ends with the stream or the process."""

    client: ServerClient
    cursor: str = field(init=False)
    _told: queue.SimpleQueue[dict[str, Any] | None] = field(
        default_factory=queue.SimpleQueue[dict[str, Any] | None]
    )
    _open: bool = True

    def __post_init__(self) -> None:
        """Begin behind what has happened until now; without the routes there is no stream."""
        try:
            self.cursor = self.client.get("/v1/system/status")["events_cursor"]
        except (ServerError, KeyError):
            self._open = False
        else:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        path = f"/v1/system/events?after={urllib.parse.quote(self.cursor, safe='')}"
        try:
            for event in self.client.follow(path, silence=_SILENCE_SECONDS):
                self._told.put(event)
        except (ServerError, ValueError):
            pass  # who waits goes on by asking
        finally:
            self._told.put(None)

    def next(self, model: str) -> dict[str, Any] | None:
        """Wait for an event of a model; nothing when it is time to ask for the status."""
        if not self._open:
            time.sleep(_ASK_SECONDS_WITHOUT_STREAM)
            return None
        end = time.monotonic() + _ASK_SECONDS
        while (seconds := end - time.monotonic()) > 0:
            try:
                event = self._told.get(timeout=seconds)
            except queue.Empty:
                return None
            if event is None:
                self._open = False
                return None
            if event.get("model") == model or event.get("data", {}).get("reset_required"):
                return event
        return None


def cancel(client: ServerClient, model: str, operation: str | None = None) -> dict[str, Any]:
    """Cancel the operation of a model, or exactly the named one; returns the answer.

    The status is read first, so that only what is seen there is cancelled. The request is
    made once: an outcome that is not known is told and not tried again. Raises `ServerError`.
    """
    shown = status_of(client, model)
    running = running_operation(shown)
    if running is None:
        message = f"nothing runs for '{shown['id']}' that could be cancelled"
        raise ServerError(message, 409, "no_active_operation")
    if operation not in (None, running):
        message = f"another operation of '{shown['id']}' runs by now: {running}"
        raise ServerError(message, 409, "stale_operation")
    if not shown["can_cancel"]:
        reason = shown["cancel_reason"] or "it cannot be cancelled at the moment"
        raise ServerError(f"'{shown['id']}': {reason}", 409, "not_cancellable")
    answer = client.post("/v1/models/cancel", {"model": shown["id"], "operation_id": running})
    told = (answer.get("model_id"), answer.get("operation_id"), answer.get("status"))
    if told != (shown["id"], running, "cancelled"):
        message = f"the server did not confirm the cancel; `pegboard models show {shown['id']}`"
        raise ServerError(f"{message} tells how the model is", 500)
    return answer
