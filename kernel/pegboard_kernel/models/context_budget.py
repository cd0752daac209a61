"""A model's context: what it is, what it may become, and what that would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegboard_contracts.backend import ModelFacts
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.lifecycle import ContextBudget, ContextCandidate, MemoryGuidance
from pegboard_contracts.models import ModelEntry, ModelState

from pegboard_kernel.models.memory import available_bytes, bytes_per_token, cache_bytes

if TYPE_CHECKING:
    from pegboard_kernel.models.record import ModelRecord
    from pegboard_kernel.settings import Settings

_SMALLEST = 128
_LARGEST = 262_144
_SMALLEST_PROMPT = 64
_GROWTH = 4
_ASSUMED = 4096


def budget_of(record: ModelRecord, settings: Settings, *, detailed: bool = True) -> ContextBudget:
    """Describe the context of one model; `detailed` adds choices and what they cost."""
    entry, facts = record.entry, record.found.facts
    configured = configured_tokens(record)
    recommended = entry.recommended_context_len or configured
    minimum, maximum = _bounds(record, configured, recommended)
    loaded = record.loaded is not None and record.state is ModelState.LOADED
    reason = _refusal(record)
    presets: tuple[int, ...] = ()
    guidance = MemoryGuidance()
    if detailed and reason is None:
        presets = _presets(minimum, maximum, (recommended, configured, _limit(record)))
        guidance = _guidance(facts, settings, configured)
    per_token = bytes_per_token(facts)
    output = _output_tokens(entry, configured)
    return ContextBudget(
        model=entry.id,
        configured_context_tokens=configured,
        recommended_context_tokens=recommended,
        model_architecture_limit_tokens=_limit(record),
        minimum_context_tokens=minimum,
        maximum_context_tokens=maximum,
        trial=_beyond(configured, recommended),
        loaded=loaded,
        applies="now" if loaded else "next-load",
        configurable=reason is None,
        reason=reason,
        presets=presets,
        candidates=tuple(
            ContextCandidate(
                context_tokens=tokens,
                trial=_beyond(tokens, recommended),
                kv_cache_bytes=None if per_token is None else per_token * tokens,
            )
            for tokens in presets
        ),
        total_context_tokens=configured,
        prompt_budget_tokens=None if configured is None else configured - output,
        output_budget_tokens=None if configured is None else _most_output(entry, configured),
        memory_guidance=guidance,
    )


def configured_tokens(record: ModelRecord) -> int | None:
    """Return the context that is configured, or what the backend gives without it."""
    if record.entry.max_context_len is not None:
        return record.entry.max_context_len
    if record.found.facts.default_context_tokens is not None:
        return record.found.facts.default_context_tokens
    return None if record.loaded is None else record.loaded.pair.info.context_tokens


def check_wanted(record: ModelRecord, settings: Settings, context_tokens: int) -> None:
    """Raise `ApiError` 400 for a context that this model cannot be given."""
    budget = budget_of(record, settings, detailed=False)
    if budget.reason is not None:
        raise invalid_request(budget.reason, param="model", code="context_not_configurable")
    smallest, largest = budget.minimum_context_tokens, budget.maximum_context_tokens
    if not smallest <= context_tokens <= largest:
        message = (
            f"The context of '{record.entry.id}' can have {smallest} to {largest} tokens. "
            f"GET /v1/models/context?model={record.entry.id} offers values."
        )
        raise invalid_request(message, param="context_tokens", code="context_out_of_bounds")


def check_expected(record: ModelRecord, expected: int) -> None:
    """Raise 409 `context_changed` when the configured context is another one."""
    configured = configured_tokens(record)
    if configured != expected:
        message = (
            f"The context of '{record.entry.id}' is {configured or 'not known'} and not the "
            "expected one: it was changed meanwhile. Look at it again before you change it."
        )
        raise ApiError(409, message, param="expected_context_tokens", code="context_changed")


def _refusal(record: ModelRecord) -> str | None:
    if record.kind != "generate":
        return f"The context of a model of kind '{record.kind}' is fixed by the model itself."
    return None


def _limit(record: ModelRecord) -> int | None:
    known = record.found.facts.architecture_limit_tokens
    if known is None and record.loaded is not None:
        known = record.loaded.pair.info.architecture_context_tokens
    return known


def _bounds(
    record: ModelRecord, configured: int | None, recommended: int | None
) -> tuple[int, int]:
    limit = _limit(record)
    base = max(configured or 0, _GROWTH * (recommended or _ASSUMED))
    largest = min(_LARGEST, limit or base)
    wanted = (record.entry.max_output_tokens or 0) + _SMALLEST_PROMPT
    return min(max(_SMALLEST, wanted), largest), largest


def _output_tokens(entry: ModelEntry, configured: int | None) -> int:
    """Return what answers keep free of a full prompt."""
    if entry.max_output_tokens is None or configured is None:
        return 1
    return max(1, min(entry.max_output_tokens, configured - _SMALLEST_PROMPT))


def _most_output(entry: ModelEntry, configured: int) -> int:
    return min(entry.max_output_tokens or configured, configured - 1)


def _presets(minimum: int, maximum: int, further: tuple[int | None, ...]) -> tuple[int, ...]:
    powers = {2**exponent for exponent in range(_LARGEST.bit_length())}
    wanted = powers | {value for value in further if value is not None}
    return tuple(sorted(value for value in wanted if minimum <= value <= maximum))


def _beyond(tokens: int | None, recommended: int | None) -> bool:
    return tokens is not None and recommended is not None and tokens > recommended


def _guidance(facts: ModelFacts, settings: Settings, tokens: int | None) -> MemoryGuidance:
    per_token = bytes_per_token(facts)
    if per_token is None:
        basis = "The model's files do not tell how large its key-value cache is."
    else:
        basis = (
            f"2 x {facts.layers} layers x {facts.kv_heads} key-value heads x {facts.head_dim} "
            f"numbers a head x {facts.kv_number_bytes:g} bytes, for every token; not measured"
        )
    cache = cache_bytes(facts, settings, tokens)
    full = per_token * tokens if per_token is not None and tokens is not None else None
    return MemoryGuidance(
        basis=basis,
        bytes_per_token=per_token,
        kv_cache_bytes=full if full is not None else cache or None,
        weights_bytes=facts.weights_bytes,
        available_bytes=available_bytes(),
    )
