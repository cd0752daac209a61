"""Models as the server knows them: catalogue entries, states and the directory service."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol

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


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Carry one entry of the catalogue file.

    Source: the fixed interface "Catalogue file". Further keys are kept by the catalogue,
    not here.
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


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """Show a model's record at one moment.

    `revision` grows with every change of the record. `error` is a sanitized reason.
    `created` is in seconds since 1970. `kind` is what the model can be asked for. The
    formats are the chosen ones with the reason of the choice, once the model is loaded.
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
