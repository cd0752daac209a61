"""Models as the server knows them: catalogue entries, states and the directory service."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, Protocol

import msgspec

from pegboard_contracts.encoding import ModelKind


class ModelState(StrEnum):
    """Name the states of a model's one record."""

    NOT_DOWNLOADED = "not_downloaded"
    QUEUED = "queued"
    DOWNLOADING = "downloading"
    CONVERTING = "converting"
    FINALIZING = "finalizing"
    READY_TO_LOAD = "ready_to_load"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"
    ERROR = "error"
    CANCELLED = "cancelled"


OperationType = Literal["load", "convert", "download"]
"""What an operation does; its id begins with the word."""


class Phase(StrEnum):
    """Name what an operation is doing, or how it ended."""

    QUEUED = "queued"
    RESOLVING = "resolving"
    DOWNLOADING = "downloading"
    CONVERTING = "converting"
    FINALIZING = "finalizing"
    LOADING = "loading"
    READY = "ready"
    CANCELLED = "cancelled"
    ERROR = "error"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Tell how far the latest operation of a model is.

    `percent` is of the phase, 0 to 100, `None` where nothing was measured; it is never
    invented. `completed` and `total` count what the phase counts (bytes of a download).
    `revision` is the record's at this report and never shrinks. Times are in seconds since
    1970. `message` holds no path and no secret.
    """

    operation_id: str
    operation_type: OperationType
    phase: Phase
    revision: int = 0
    message: str = ""
    percent: float | None = None
    completed: int | None = None
    total: int | None = None
    started_at: float = 0.0
    updated_at: float = 0.0


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Carry one entry of the catalogue file.

    Source: the fixed interface "Catalogue file". `recommended_context_len` is the first value
    of a context that was changed since; `pinned` keeps the model loaded. `group_size`, `ratio`
    and `sym` are how it was converted. Further keys are kept by the catalogue, not here.
    """

    id: str
    source_model: str
    name: str = ""
    backend: str = "openvino-genai"
    path: str | None = None
    weight_format: str | None = None
    recommended_device: str = "CPU"
    max_context_len: int | None = None
    max_output_tokens: int | None = None
    tool_format: str = "auto"
    reasoning_format: str = "auto"
    aliases: tuple[str, ...] = ()
    trust_remote_code: bool = False
    autostart: bool = False
    description: str = ""
    options: dict[str, Any] = {}
    recommended_context_len: int | None = None
    pinned: bool = False
    group_size: int | None = None
    ratio: float | None = None
    sym: bool | None = None


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """Show a model's record at one moment.

    `revision` grows with every change of the record. `error` is a sanitized reason.
    `created` is in seconds since 1970. `kind` is what the model can be asked for. The
    formats are the chosen ones with the reason of the choice, once the model is loaded.
    `requested_device` is the device that was asked for and `device` the one that runs;
    `switch_error` says why the last change of a loaded model failed. `progress` is of the
    latest operation; `can_cancel` holds for exactly that one, `cancel_reason` says why not.
    `is_downloaded` says that the files are here and sound. `requests` counts answers since
    the server began.
    """

    entry: ModelEntry
    state: ModelState
    revision: int
    created: int
    kind: ModelKind = "generate"
    error: str | None = None
    device: str | None = None
    context_tokens: int | None = None
    tool_format: str | None = None
    tool_format_reason: str | None = None
    reasoning_format: str | None = None
    reasoning_format_reason: str | None = None
    requested_device: str | None = None
    switch_error: str | None = None
    progress: Progress | None = None
    can_cancel: bool = False
    cancel_reason: str | None = None
    can_load: bool = False
    can_unload: bool = False
    can_convert: bool = False
    can_delete: bool = False
    is_downloaded: bool = False
    pinned: bool = False
    requests: int = 0


class ModelDirectory(Protocol):
    """Know every model: the service behind listings, status and the load and unload verbs.

    Runs on the server's event loop.
    """

    def models(self) -> list[ModelView]:
        """List all models, by id."""
        ...

    def find(self, name: str) -> ModelView | None:
        """Return the model of an exact id or alias, or nothing. `auto` is no name."""
        ...

    async def load(self, model: str) -> ModelView:
        """Load a registered model and wait for `loaded` or `error`.

        Raises `ApiError` 404 for an unknown model, 409 when another operation is running.
        """
        ...

    async def unload(self, model: str) -> ModelView:
        """Close the model's engine after its running answers and return its view."""
        ...

    async def inspect(self, model: str) -> dict[str, Any]:
        """Return what the model's engine tells about itself (`Engine.inspect`)."""
        ...
