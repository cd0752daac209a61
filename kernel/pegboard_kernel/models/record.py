"""One model's record: its state, who may change it how, and what is loaded."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator
from typing import Literal

import msgspec
from pegboard_contracts.backend import ModelFacts
from pegboard_contracts.encoding import ModelKind
from pegboard_contracts.errors import ApiError, error_from_wire, error_to_wire
from pegboard_contracts.generation import FinishReason
from pegboard_contracts.lifecycle import LoadOptions
from pegboard_contracts.models import ModelEntry, ModelState, ModelView, Progress

from pegboard_kernel.engines.engine_pair import EnginePair
from pegboard_kernel.generation.format_choice import ModelFormats
from pegboard_kernel.models.operations import Operation
from pegboard_kernel.sanitizing import sanitized

_S = ModelState

TRANSITIONS: dict[ModelState, frozenset[ModelState]] = {
    _S.NOT_DOWNLOADED: frozenset({_S.QUEUED, _S.READY_TO_LOAD, _S.ERROR}),
    _S.QUEUED: frozenset({_S.DOWNLOADING, _S.CONVERTING, _S.FINALIZING, _S.CANCELLED, _S.ERROR}),
    _S.DOWNLOADING: frozenset({_S.CONVERTING, _S.FINALIZING, _S.CANCELLED, _S.ERROR}),
    _S.CONVERTING: frozenset({_S.FINALIZING, _S.CANCELLED, _S.ERROR}),
    _S.FINALIZING: frozenset({_S.READY_TO_LOAD, _S.CANCELLED, _S.ERROR}),
    _S.READY_TO_LOAD: frozenset({_S.LOADING, _S.QUEUED, _S.NOT_DOWNLOADED}),
    _S.LOADING: frozenset({_S.LOADED, _S.READY_TO_LOAD, _S.CANCELLED, _S.ERROR}),
    # Back to loading: the engine is lost while another one is being opened.
    _S.LOADED: frozenset({_S.UNLOADING, _S.ERROR, _S.LOADING}),
    _S.UNLOADING: frozenset({_S.READY_TO_LOAD, _S.ERROR}),
    _S.ERROR: frozenset({_S.LOADING, _S.QUEUED, _S.READY_TO_LOAD, _S.NOT_DOWNLOADED}),
    _S.CANCELLED: frozenset({_S.LOADING, _S.QUEUED, _S.READY_TO_LOAD, _S.NOT_DOWNLOADED}),
}
"""Which state may follow which; everything else is a bug of the caller."""

PREPARING = frozenset({_S.QUEUED, _S.DOWNLOADING, _S.CONVERTING, _S.FINALIZING})
RUNNING = frozenset({_S.LOADING, _S.LOADED, _S.UNLOADING})
AT_REST = frozenset({_S.READY_TO_LOAD, _S.ERROR, _S.CANCELLED})

Change = Literal["state", "progress", "changed", "notice"]
"""What a change is told as; a notice is one that went wrong beside the state."""


class Loaded(msgspec.Struct, frozen=True):
    """Hold what a loaded model answers with, and the device that was asked for."""

    pair: EnginePair
    formats: ModelFormats
    device: str


class Found(msgspec.Struct, frozen=True):
    """Tell what a look at a model's files found; `problem` says why it cannot be loaded."""

    kind: ModelKind = "generate"
    downloaded: bool = True
    facts: ModelFacts = ModelFacts()
    problem: str | None = None
    convertible: bool = False


class ModelRecord:
    """Be the one record of a model. Written by the lifecycle only. Event loop only.

    `work` is what runs for the model, `operation` the part of it that has an id, `occupied`
    a short change that excludes others. `deferred` is the load that follows a conversion.
    """

    def __init__(
        self,
        entry: ModelEntry,
        found: Found | None = None,
        on_change: Callable[[ModelRecord, Change], None] | None = None,
    ) -> None:
        """Register the entry with what was found of its files."""
        self.entry = entry
        self.found = found or Found()
        self.kind: ModelKind = self.found.kind
        self.state = _S.READY_TO_LOAD if self.found.downloaded else _S.NOT_DOWNLOADED
        self.loaded: Loaded | None = None
        self.work: asyncio.Task[None] | None = None
        self.operation: Operation | None = None
        self.occupied: str | None = None
        self.arriving = False
        self.deferred: LoadOptions | None = None
        self.progress: Progress | None = None
        self.requested_device: str | None = None
        self.switch_error: str | None = None
        self.pinned = entry.pinned
        self.requests = 0
        self.last_used = time.monotonic()
        self.grace_until = 0.0
        self._agent_grace = 0.0
        self._revision = 1
        self._created = int(time.time())
        self._error = self.found.problem
        self._fault: ApiError | None = None
        self._on_change = on_change

    def move(
        self,
        state: ModelState,
        *,
        error: ApiError | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Go to another state; `error` is its reason. Raises `RuntimeError` when not legal."""
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"a model cannot go from {self.state} to {state}")
        self.state = state
        self._fault = error
        self._error = None if error is None else sanitized(error.message)
        if state is _S.NOT_DOWNLOADED:
            self._error = self.found.problem
        self._changed("state", progress)

    def report(self, progress: Progress) -> None:
        """Show how far the operation is."""
        self._changed("progress", progress)

    def change(
        self,
        *,
        entry: ModelEntry | None = None,
        found: Found | None = None,
        error: ApiError | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Take new facts without leaving the state; `error` is shown beside it."""
        if entry is not None:
            self.entry = entry
        if found is not None:
            self.found, self.kind = found, found.kind
        if error is not None:
            self._fault, self._error = error, sanitized(error.message)
        self._changed("changed" if error is None else "notice", progress)

    def switch_failed(self, error: ApiError, progress: Progress) -> None:
        """Take note that a loaded model goes on as it was because a change of it failed."""
        self.switch_error = sanitized(error.message)
        self._changed("notice", progress)

    def _changed(self, what: Change, progress: Progress | None) -> None:
        self._revision += 1
        if progress is not None:
            self.progress = msgspec.structs.replace(progress, revision=self._revision)
        if self._on_change is not None:
            self._on_change(self, what)

    @property
    def fault(self) -> ApiError | None:
        """Return why the model is not loaded, as a fresh exception."""
        return None if self._fault is None else error_from_wire(error_to_wire(self._fault))

    @contextlib.contextmanager
    def occupy(self, what: str) -> Generator[None]:
        """Keep every verb away for a short change. Raises 409 like `check_free`."""
        self.check_free()
        self.occupied = what
        try:
            yield
        finally:
            self.occupied = None

    def check_free(self) -> None:
        """Raise 409 `model_busy` or `model_loading` while something else changes the model."""
        model = self.entry.id
        if self.state is _S.LOADING:
            message = f"The model '{model}' is being loaded. Try again when it is."
            raise ApiError(409, message, param="model", code="model_loading")
        if self.work is not None or self.occupied is not None:
            doing = self.occupied or "another operation on it is running"
            message = f"The model '{model}' is busy: {doing}. Wait until it ends, or cancel it."
            raise ApiError(409, message, param="model", code="model_busy")

    @property
    def is_opening(self) -> bool:
        """Tell whether an engine of it is being opened, the first one or another."""
        return self.arriving or (self.operation is not None and self.operation.kind == "load")

    def touch(self) -> None:
        """Count as used now."""
        self.last_used = time.monotonic()

    def count_answers(self, agent_grace: float) -> None:
        """Keep how many seconds a model stays after an answer that asked for tools."""
        self._agent_grace = agent_grace

    def answered(self, reason: FinishReason | None = None) -> None:
        """Take note of an answer: the model is in use, and perhaps in the middle of a task."""
        self.requests += 1
        self.touch()
        calls = reason is FinishReason.TOOL_CALLS
        self.grace_until = self.last_used + self._agent_grace if calls else 0.0

    @property
    def idle_since(self) -> float | None:
        """Return since when the model could be unloaded, by the monotonic clock, or nothing."""
        loaded = self.loaded
        if self.state is not _S.LOADED or loaded is None or self.pinned:
            return None
        if self.work is not None or self.occupied is not None or loaded.pair.leases:
            return None
        return max(self.last_used, self.grace_until)

    def view(self) -> ModelView:
        """Show the record as it is now."""
        state, free = self.state, self.work is None and self.occupied is None
        operation, loaded = self.operation, self.loaded
        refusal = None if operation is None else operation.refusal
        shown = ModelView(
            entry=self.entry,
            state=state,
            revision=self._revision,
            created=self._created,
            kind=self.kind,
            error=self._error,
            requested_device=self.requested_device,
            switch_error=self.switch_error,
            progress=self.progress,
            can_cancel=operation is not None and refusal is None and not operation.cancelled,
            cancel_reason=None if refusal is None else refusal.message,
            can_load=free and state in AT_REST and self.found.downloaded,
            can_unload=free and state is _S.LOADED,
            can_convert=free and state not in RUNNING and self.found.convertible,
            can_delete=free and state not in RUNNING and self.entry.path is not None,
            is_downloaded=self.found.downloaded,
            pinned=self.pinned,
            requests=self.requests,
        )
        if loaded is None:
            return shown
        info, formats = loaded.pair.info, loaded.formats
        return msgspec.structs.replace(
            shown,
            device=info.device or None,
            context_tokens=info.context_tokens,
            tool_format=formats.tool_name,
            tool_format_reason=formats.tool_reason or None,
            reasoning_format=formats.reasoning_name,
            reasoning_format_reason=formats.reasoning_reason or None,
        )
