"""One model's record: its state, who may change it how, and what is loaded."""

from __future__ import annotations

import time

import msgspec
from pegboard_contracts.encoding import ModelKind
from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import ModelEntry, ModelState, ModelView

from pegboard_kernel.engines.engine_pair import EnginePair
from pegboard_kernel.generation.format_choice import ModelFormats

_S = ModelState

TRANSITIONS: dict[ModelState, frozenset[ModelState]] = {
    _S.NOT_DOWNLOADED: frozenset({_S.QUEUED, _S.READY_TO_LOAD}),
    _S.QUEUED: frozenset({_S.DOWNLOADING, _S.CONVERTING, _S.CANCELLED, _S.ERROR}),
    _S.DOWNLOADING: frozenset({_S.CONVERTING, _S.FINALIZING, _S.CANCELLED, _S.ERROR}),
    _S.CONVERTING: frozenset({_S.FINALIZING, _S.CANCELLED, _S.ERROR}),
    _S.FINALIZING: frozenset({_S.READY_TO_LOAD, _S.CANCELLED, _S.ERROR}),
    _S.READY_TO_LOAD: frozenset({_S.LOADING, _S.QUEUED}),
    _S.LOADING: frozenset({_S.LOADED, _S.READY_TO_LOAD, _S.ERROR}),
    _S.LOADED: frozenset({_S.UNLOADING, _S.ERROR}),
    _S.UNLOADING: frozenset({_S.READY_TO_LOAD, _S.ERROR}),
    _S.ERROR: frozenset({_S.LOADING, _S.QUEUED, _S.READY_TO_LOAD}),
    _S.CANCELLED: frozenset({_S.QUEUED, _S.NOT_DOWNLOADED, _S.READY_TO_LOAD}),
}
"""Which state may follow which; everything else is a bug of the caller."""


class Loaded(msgspec.Struct, frozen=True):
    """Hold what a loaded model answers with."""

    pair: EnginePair
    formats: ModelFormats


class ModelRecord:
    """Be the one record of a model. Written by the directory only."""

    def __init__(self, entry: ModelEntry) -> None:
        """Register the entry; its files are taken to be there until a load says otherwise."""
        self.entry = entry
        self.state = ModelState.READY_TO_LOAD
        self.kind: ModelKind = "generate"
        self.loaded: Loaded | None = None
        self._revision = 1
        self._created = int(time.time())
        self._error: str | None = None

    def move(self, state: ModelState, *, error: ApiError | None = None) -> None:
        """Go to another state; `error` is its reason. Raises `RuntimeError` when not legal."""
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"a model cannot go from {self.state} to {state}")
        self.state = state
        self._error = None if error is None else error.message
        self._revision += 1

    def view(self) -> ModelView:
        """Show the record as it is now."""
        if self.loaded is None:
            return ModelView(
                entry=self.entry,
                state=self.state,
                revision=self._revision,
                created=self._created,
                kind=self.kind,
                error=self._error,
            )
        info, formats = self.loaded.pair.info, self.loaded.formats
        return ModelView(
            entry=self.entry,
            state=self.state,
            revision=self._revision,
            created=self._created,
            kind=self.kind,
            error=self._error,
            device=info.device or None,
            context_tokens=info.context_tokens,
            tool_format=formats.tool_name,
            tool_format_reason=formats.tool_reason or None,
            reasoning_format=formats.reasoning_name,
            reasoning_format_reason=formats.reasoning_reason or None,
        )
