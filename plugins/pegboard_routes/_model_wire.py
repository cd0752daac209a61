"""Models on the wire of the native routes: the entry, the snapshot, the acknowledgement."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Literal

import msgspec
from pegboard_contracts.encoding import ModelKind
from pegboard_contracts.models import (
    ModelDirectory,
    ModelState,
    ModelView,
    OperationType,
    Phase,
    Progress,
)
from pegboard_contracts.server import ServerInfo

ENDED = frozenset({Phase.READY, Phase.CANCELLED, Phase.ERROR})
"""Phases in which an operation runs no more."""

PREPARING = frozenset(
    {
        ModelState.QUEUED,
        ModelState.DOWNLOADING,
        ModelState.CONVERTING,
        ModelState.FINALIZING,
        ModelState.LOADING,
    }
)
"""States of a model that cannot answer yet and will."""

_VISION = "openvino-vlm"
_SCRIPTED = "scripted:"
_WITHOUT_FOLDERS = ("hf:", "package:")
_CAPABILITIES: dict[ModelKind, str] = {
    "generate": "chat",
    "embedding": "embeddings",
    "rerank": "rerank",
}
_LABELS = {
    ModelState.NOT_DOWNLOADED: "Not downloaded",
    ModelState.READY_TO_LOAD: "Ready to load",
}


class ShownProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Show how far the latest operation of a model is; `idle` when there was none.

    `percent` is of the phase and null where nothing was measured. Times are in seconds since
    1970.
    """

    schema_version: Literal[1] = 1
    phase: str = "idle"
    percent: float | None = None
    message: str = ""
    operation_id: str | None = None
    operation_type: OperationType | None = None
    revision: int | None = None
    completed: int | None = None
    total: int | None = None
    started_at: float | None = None
    updated_at: float | None = None


class ShownModel(msgspec.Struct, frozen=True, kw_only=True):
    """Show everything that is safe to know of a model.

    `device` is where it runs, `requested_device` what was asked for. `source_model` is the
    last name of a file or folder of this machine. `can_cancel` holds for the operation that
    `progress` names. `switch_error` says why the last change of a loaded
    model failed.
    """

    id: str
    name: str
    description: str
    aliases: tuple[str, ...]
    status: ModelState
    status_label: str
    revision: int
    is_loaded: bool
    is_loading: bool
    is_downloaded: bool
    pinned: bool
    device: str | None
    requested_device: str | None
    actual_device: str | None
    recommended_device: str
    weight_format: str | None
    source_model: str
    context_tokens: int | None
    max_context_len: int | None
    max_output_tokens: int | None
    trust_remote_code: bool
    backend: str
    kind: ModelKind
    capabilities: tuple[str, ...]
    supports_vision: bool
    input_modalities: tuple[str, ...]
    can_load: bool
    can_unload: bool
    can_convert: bool
    can_delete: bool
    can_cancel: bool
    cancel_reason: str | None
    error: str | None
    switch_error: str | None
    progress: ShownProgress
    requests: int
    created: int


class DeviceState(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the default device and where each loaded model runs.

    `mock` says that what is loaded is scripted and proves nothing about hardware.
    """

    default: str
    mock: bool
    loaded: dict[str, str]
    busy: bool


class ModelsState(msgspec.Struct, frozen=True, kw_only=True):
    """List the loaded ids and every registered model; `count` counts the loaded ones."""

    loaded: list[str]
    count: int
    loading_count: int
    available: list[ShownModel]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Show all models at one moment; `generated_at` is in seconds since 1970."""

    schema_version: Literal[1] = 1
    generated_at: float
    device: DeviceState
    models: ModelsState


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """Tell that a verb was taken, and how the model is now.

    `operation_id` names the work that goes on; `progress` of the model tells how it ends.
    """

    status: str
    message: str
    model_id: str
    revision: int
    operation_id: str | None = None
    model: ShownModel


def running_operation(view: ModelView) -> Progress | None:
    """Return the progress of the operation that runs, or nothing."""
    progress = view.progress
    return None if progress is None or progress.phase in ENDED else progress


def is_loading(view: ModelView) -> bool:
    """Tell whether something is going on that ends in an engine or in files."""
    return view.state in PREPARING or running_operation(view) is not None


def shown(view: ModelView) -> ShownModel:
    """Put a model's view into the shape of the catalogue entry."""
    entry = view.entry
    vision = entry.backend == _VISION
    capability = _CAPABILITIES[view.kind]
    return ShownModel(
        id=entry.id,
        name=entry.name or entry.id,
        description=entry.description,
        aliases=entry.aliases,
        status=view.state,
        status_label=_LABELS.get(view.state, view.state.value.capitalize()),
        revision=view.revision,
        is_loaded=view.state is ModelState.LOADED,
        is_loading=is_loading(view),
        is_downloaded=view.is_downloaded,
        pinned=view.pinned,
        device=view.device,
        requested_device=view.requested_device,
        actual_device=view.device,
        recommended_device=entry.recommended_device,
        weight_format=entry.weight_format,
        source_model=shown_source(entry.source_model),
        context_tokens=view.context_tokens or entry.max_context_len,
        max_context_len=entry.max_context_len,
        max_output_tokens=entry.max_output_tokens,
        trust_remote_code=entry.trust_remote_code,
        backend=entry.backend,
        kind=view.kind,
        capabilities=(capability, "vision") if vision else (capability,),
        supports_vision=vision,
        input_modalities=("text", "image") if vision else ("text",),
        can_load=view.can_load,
        can_unload=view.can_unload,
        can_convert=view.can_convert,
        can_delete=view.can_delete,
        can_cancel=view.can_cancel,
        cancel_reason=view.cancel_reason,
        error=view.error,
        switch_error=view.switch_error,
        progress=_shown_progress(view.progress),
        requests=view.requests,
        created=view.created,
    )


def shown_source(source: str) -> str:
    """Return where a model comes from, without the folders of this machine."""
    if source.startswith(_WITHOUT_FOLDERS):
        return source
    kind = _SCRIPTED if source.startswith(_SCRIPTED) else ""
    return kind + re.split(r"[\\/]", source.removeprefix(kind).rstrip("\\/"))[-1]


def _shown_progress(progress: Progress | None) -> ShownProgress:
    if progress is None:
        return ShownProgress()
    return ShownProgress(**msgspec.structs.asdict(progress))


def device_state(views: Sequence[ModelView], info: ServerInfo) -> DeviceState:
    """Tell where everything runs."""
    loaded = [view for view in views if view.state is ModelState.LOADED]
    return DeviceState(
        default=info.default_device,
        mock=bool(loaded) and all(view.entry.backend == "scripted" for view in loaded),
        loaded={view.entry.id: view.device for view in loaded if view.device},
        busy=any(map(is_loading, views)),
    )


def models_state(views: Sequence[ModelView]) -> ModelsState:
    """List every model."""
    loaded = [view.entry.id for view in views if view.state is ModelState.LOADED]
    return ModelsState(
        loaded=loaded,
        count=len(loaded),
        loading_count=sum(map(is_loading, views)),
        available=[shown(view) for view in views],
    )


def snapshot(directory: ModelDirectory, info: ServerInfo) -> Snapshot:
    """Show all models as they are now."""
    views = directory.models()
    return Snapshot(
        generated_at=time.time(), device=device_state(views, info), models=models_state(views)
    )


def acknowledged(view: ModelView, status: str, message: str) -> Acknowledgement:
    """Acknowledge a verb with the state of its model."""
    running = running_operation(view)
    return Acknowledgement(
        status=status,
        message=message,
        model_id=view.entry.id,
        revision=view.revision,
        operation_id=None if running is None else running.operation_id,
        model=shown(view),
    )
