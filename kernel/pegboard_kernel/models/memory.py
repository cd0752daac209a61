"""What a load needs, and what there is: an estimate from the model's own files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
from pegboard_contracts.backend import ModelFacts
from pegboard_contracts.errors import ApiError

if TYPE_CHECKING:
    from pegboard_kernel.settings import Settings

_GB = 10**9


def bytes_per_token(facts: ModelFacts) -> int | None:
    """Return what the key-value cache of one token takes, or nothing when it is unknown."""
    sizes = (facts.layers, facts.kv_heads, facts.head_dim, facts.kv_number_bytes)
    if any(size is None for size in sizes):
        return None
    layers, heads, dimension, number = (size or 0 for size in sizes)
    return round(2 * layers * heads * dimension * number)


def cache_bytes(facts: ModelFacts, settings: Settings, context_tokens: int | None) -> int:
    """Return what the key-value cache of an engine takes; 0 when it is unknown."""
    if settings.kv_cache_gb is not None:
        return round(settings.kv_cache_gb * _GB)
    if facts.cache_bytes is not None:
        return facts.cache_bytes
    per_token = bytes_per_token(facts)
    tokens = context_tokens or facts.default_context_tokens
    return 0 if per_token is None or tokens is None else per_token * tokens


def needed_bytes(facts: ModelFacts, settings: Settings, context_tokens: int | None) -> int | None:
    """Return what an open engine takes, or nothing when not even its weights are known."""
    if facts.weights_bytes is None:
        return None
    cache = cache_bytes(facts, settings, context_tokens)
    return facts.weights_bytes + facts.overhead_bytes + cache


def available_bytes() -> int:
    """Return the memory that processes can take without pushing others out."""
    return int(psutil.virtual_memory().available)


def check_memory(model: str, needed: int | None, reserved: int = 0) -> None:
    """Raise 409 `insufficient_memory` with both numbers.

    `reserved` is what loads take that have begun and are not done; unknown needs pass.
    """
    available = max(0, available_bytes() - reserved)
    if needed is None or needed <= available:
        return
    message = (
        f"'{model}' needs about {_shown(needed)} of memory and {_shown(available)} are available. "
        "Unload another model, choose a smaller context, or load it all the same with "
        '"force": true (`pegboard models load --force`).'
    )
    raise ApiError(409, message, param="model", code="insufficient_memory")


def _shown(size: int) -> str:
    return f"{size / _GB:.1f} GB" if size >= _GB else f"{size / 10**6:.0f} MB"
