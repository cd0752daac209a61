"""What the files of a model say about its context and about the memory it will take."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, cast

from pegboard_contracts.backend import ModelFacts
from pegboard_contracts.errors import ApiError

from pegboard_backends._openvino.completeness import model_source
from pegboard_backends._openvino.encoder_files import read_encoder_files
from pegboard_backends._openvino.gguf_file import GgufFile, GgufTensor, read_gguf
from pegboard_backends._openvino.model_files import (
    context_tokens_of,
    json_file,
    positive,
    read_manifest,
)

_TEXT_OVERHEAD_BYTES = 320 << 20
_ENCODER_OVERHEAD_BYTES = 160 << 20
"""What an open engine took beyond its weights' files on a CPU: the runtime, compiled code."""

_EIGHT_BITS = 1 + 3 / 32
_BYTES_PER_WEIGHT = {"F32": 4, "F16": 2, "BF16": 2, "Q4_0": 0.5 + 2.5 / 32, "Q6_K": 1 + 3 / 16}
"""Bytes of a weight in the IR that a GGUF file becomes, with its share of scales and zero
points; the kinds that are not named become 8 bits in groups of 32."""


def text_facts(source: Path, *, small_cache: bool) -> ModelFacts:
    """Return what the files of a text model say, nothing where they cannot be read.

    A small cache has 8 bits a number and not 16.
    """
    try:
        source = model_source(source)
        if source.is_dir():
            return _folder_facts(source, small_cache=small_cache)
        return _gguf_facts(read_gguf(source), small_cache=small_cache)
    except (OSError, ApiError):
        return ModelFacts()


def encoder_facts(source: Path) -> ModelFacts:
    """Return what the files of an encoder say; it has no key-value cache."""
    try:
        files = read_encoder_files(source)
        return ModelFacts(
            architecture_limit_tokens=files.max_tokens,
            default_context_tokens=files.max_tokens,
            weights_bytes=_weights_bytes(source),
            overhead_bytes=_ENCODER_OVERHEAD_BYTES,
        )
    except (OSError, ApiError):
        return ModelFacts()


def _folder_facts(folder: Path, *, small_cache: bool) -> ModelFacts:
    config = json_file(folder, "config.json")
    manifest = read_manifest(folder)
    nested: Any = config.get("text_config")
    text = cast("Mapping[str, Any]", nested) if isinstance(nested, Mapping) else config
    context = context_tokens_of(config) if manifest is None else manifest.context_tokens
    heads = positive(text.get("num_attention_heads")) or positive(text.get("n_head"))
    width = positive(text.get("hidden_size")) or positive(text.get("n_embd"))
    head_dim = positive(text.get("head_dim")) or (width // heads if width and heads else None)
    return ModelFacts(
        architecture_limit_tokens=context,
        default_context_tokens=context,
        layers=positive(text.get("num_hidden_layers")) or positive(text.get("n_layer")),
        kv_heads=positive(text.get("num_key_value_heads")) or heads,
        head_dim=head_dim,
        kv_number_bytes=_kv_number_bytes(head_dim, small_cache=small_cache),
        weights_bytes=_weights_bytes(folder),
        overhead_bytes=_TEXT_OVERHEAD_BYTES,
    )


def _gguf_facts(gguf: GgufFile, *, small_cache: bool) -> ModelFacts:
    def number(key: str) -> int | None:
        value: Any = gguf.metadata.get(f"{gguf.architecture}.{key}")
        # Models whose layers differ have a list: the largest is the safe one.
        listed = cast("list[object]", value) if isinstance(value, list) else [value]
        return max(filter(None, map(positive, listed)), default=None)

    heads, width = number("attention.head_count"), number("embedding_length")
    head_dim = number("attention.key_length") or (width // heads if width and heads else None)
    return ModelFacts(
        architecture_limit_tokens=gguf.context_tokens,
        default_context_tokens=gguf.context_tokens,
        layers=number("block_count"),
        kv_heads=number("attention.head_count_kv") or heads,
        head_dim=head_dim,
        kv_number_bytes=_kv_number_bytes(head_dim, small_cache=small_cache),
        weights_bytes=sum(map(_converted_bytes, gguf.tensors.values())),
        overhead_bytes=_TEXT_OVERHEAD_BYTES,
    )


def _kv_number_bytes(head_dim: int | None, *, small_cache: bool) -> float | None:
    """Return the mean of keys and values; 8-bit ones have a scale and a zero point, f32 each.

    Those of the keys are of a channel and 32 tokens, those of the values of a token's head.
    """
    if not small_cache:
        return 2.0
    return None if head_dim is None else 1 + (8 / 32 + 8 / head_dim) / 2


def _converted_bytes(tensor: GgufTensor) -> int:
    return int(prod(tensor.shape) * _BYTES_PER_WEIGHT.get(tensor.kind, _EIGHT_BITS))


def _weights_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.bin"))
