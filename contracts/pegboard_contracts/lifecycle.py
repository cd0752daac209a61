"""The life of a model from registration to removal: verbs, operations and events.

`ModelLifecycle` is the only way to change a model's record; listings are views of it
(`pegboard_contracts.models`). Source: the API contract, "Local management routes".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Literal, Protocol

import msgspec

from pegboard_contracts.models import ModelView, OperationType


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for a load: on which device, with which context, against the memory check or not.

    `pinned` keeps the model from being unloaded when idle or to make room.
    """

    device: str | None = None
    context_tokens: int | None = None
    force: bool = False
    pinned: bool | None = None


class ConversionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for a conversion; `None` means what the catalogue or the converter says.

    `ratio` is the share of weights in the wanted format, `group_size` counts channels, -1 is
    one group a channel. `trust_remote_code` runs Python code of the model's repository.
    """

    device: str | None = None
    load_after: bool = True
    weight_format: str | None = None
    group_size: int | None = None
    ratio: float | None = None
    sym: bool | None = None
    trust_remote_code: bool | None = None


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for a new catalogue entry; `None` means the default of the catalogue."""

    id: str
    source_model: str
    name: str = ""
    backend: str = "openvino-genai"
    weight_format: str | None = None
    recommended_device: str | None = None
    max_context_len: int | None = None
    max_output_tokens: int | None = None
    description: str = ""
    trust_remote_code: bool = False


class SuggestedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Offer a model that serves well on Intel hardware; it is neither registered nor checked.

    The fields are those of a registration. `size_bytes` is about what is fetched: the hub
    states the exact size before a download. `registered_as` is the id under which the
    catalogue has the source already.
    """

    id: str
    name: str
    source_model: str
    backend: str
    weight_format: str
    recommended_device: str
    license: str
    size_bytes: int
    description: str
    registered_as: str | None = None


class CancelOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Tell that an operation is cancelled, now or since before."""

    view: ModelView
    operation_id: str
    operation_type: OperationType
    already_cancelled: bool = False


AS_IT_IS = LoadOptions()
BY_CATALOGUE = ConversionOptions()


class ContextCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """Offer a context; memory is an estimate that nobody has verified here."""

    context_tokens: int
    trial: bool
    kv_cache_bytes: int | None = None


class MemoryGuidance(msgspec.Struct, frozen=True, kw_only=True):
    """Estimate the key-value cache of one full context from the model's own configuration.

    Bytes per token are 2 x layers x key-value heads x head size x bytes per number.
    """

    verified: bool = False
    basis: str = ""
    bytes_per_token: int | None = None
    kv_cache_bytes: int | None = None
    weights_bytes: int | None = None
    available_bytes: int | None = None


class ContextBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Show what a model's context is and may become, in tokens.

    `recommended_context_tokens` is the first value of the entry and survives every change;
    `trial` says that the configured one is beyond it. `applies` says when a change counts.
    """

    model: str
    configured_context_tokens: int | None
    recommended_context_tokens: int | None
    model_architecture_limit_tokens: int | None
    minimum_context_tokens: int
    maximum_context_tokens: int
    trial: bool
    loaded: bool
    applies: Literal["now", "next-load"]
    configurable: bool
    reason: str | None = None
    presets: tuple[int, ...] = ()
    candidates: tuple[ContextCandidate, ...] = ()
    total_context_tokens: int | None = None
    prompt_budget_tokens: int | None = None
    output_budget_tokens: int | None = None
    memory_guidance: MemoryGuidance = MemoryGuidance()


class LifecycleEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Report one change. `id` is `EPOCH-NUMBER`: the epoch is new with every server.

    `type` is `state`, `progress`, `registered`, `changed`, `removed` or `notice`. `data` is
    plain and safe to show: state, revision, progress.
    """

    id: str
    timestamp: float
    level: Literal["info", "warning", "error"]
    type: str
    message: str
    model: str | None = None
    data: dict[str, Any] = {}


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Hold events in order; `reset_required` when some after the cursor are forgotten."""

    events: list[LifecycleEvent]
    latest: str
    reset_required: bool = False


class LifecycleEvents(Protocol):
    """Remember the recent changes and tell of new ones: a service. Event loop only."""

    def recent(self, after: str | None = None, limit: int = 50) -> EventPage:
        """Return the events behind the cursor `after`, or the last `limit` ones."""
        ...

    def follow(self, after: str | None = None) -> AsyncGenerator[LifecycleEvent, None]:
        """Yield the remembered events behind `after`, then each new one, until the server stops.

        Progress events that a slow reader has not taken are replaced by later ones of the
        same model.
        """
        ...


class ModelLifecycle(Protocol):
    """Change models: a service, the single writer of their records. Event loop only.

    Verbs that take long return as soon as the work has begun; `settled` waits for its end.
    All raise `ApiError`: 404 for an unknown model, 409 for one in a conflicting state, 400
    for what cannot be asked of this model.
    """

    async def load(self, model: str, options: LoadOptions = AS_IT_IS) -> ModelView:
        """Begin to load; a model that is loaded as asked is returned as it is.

        Another device than the loaded one begins a switch: the old engine serves until the
        new one stands, and goes on serving when that fails. Raises 409
        `insufficient_memory` with both numbers, `context_mismatch` for another context than
        the loaded one has, `model_not_downloaded` where there are no files.
        """
        ...

    async def unload(self, model: str) -> ModelView:
        """Begin to unload: no new request is taken, running ones finish."""
        ...

    async def convert(self, model: str, options: ConversionOptions = BY_CATALOGUE) -> ModelView:
        """Begin to download and convert a model, or to download what needs no conversion.

        A second call while one runs returns it. Raises 409 for a loaded model and for what
        the hub denies, 501 `converter_not_installed` with the command that installs it.
        """
        ...

    async def settled(self, model: str) -> ModelView:
        """Wait until no operation of the model runs and return its view."""
        ...

    async def cancel(self, model: str, operation_id: str) -> CancelOutcome:
        """Cancel exactly this operation and return when its processes are gone.

        Raises 409 `no_active_operation`, `stale_operation`, `native_load_in_progress`,
        `not_cancellable`, `task_finished`.
        """
        ...

    async def register(self, registration: Registration) -> tuple[ModelView, bool]:
        """Add a catalogue entry durably; the second value is false when it was there already.

        Raises 400 `invalid_model_id`, 409 `model_exists` naming the fields that differ.
        """
        ...

    def suggestions(self) -> list[SuggestedModel]:
        """Return good models to begin with; asks nobody."""
        ...

    async def delete_files(self, model: str) -> tuple[ModelView, int]:
        """Delete the model's own files under the data folder and return the freed bytes.

        The entry stays. Raises 409 for a loaded or busy model.
        """
        ...

    async def remove(self, model: str) -> int:
        """Remove entry and files; returns the freed bytes. Raises 409 as `delete_files`."""
        ...

    def budgets(self) -> list[ContextBudget]:
        """Return the context of every registered model, by id."""
        ...

    def budget(self, model: str) -> ContextBudget:
        """Return the context of one model with presets, candidates and memory guidance."""
        ...

    async def change_context(
        self, model: str, context_tokens: int, expected_context_tokens: int
    ) -> ContextBudget:
        """Change a context and return when it holds.

        A loaded model gets a new engine first, then the catalogue is saved, then the engine
        takes over; a failure of either leaves everything as it was. Raises 409
        `context_changed` when the configured value is not the expected one, 400 for a value
        outside the bounds or an embedding model.
        """
        ...
