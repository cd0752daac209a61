"""Which folders of IR are encoders: told by their files, so that nobody has to say it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, cast

from pegboard_contracts.errors import ApiError

from pegboard_backends._openvino.encoder_files import pools_by_file
from pegboard_backends._openvino.model_files import json_file

EncoderKind = Literal["embedding", "rerank"]

_CLASSIFIER = "ForSequenceClassification"
_GENERATES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "ForVision2Seq")
_HIDDEN_STATES = frozenset({b"last_hidden_state", b"token_embeddings", b"sentence_embedding"})
_STATE = frozenset({b"beam_idx", b"past_key_values.0.key"})
_NAMES = re.compile(rb'(?:output_)?names="([^"]*)"')
_RESULT = re.compile(rb'type="Result"[^>]*>(.*?)</layer>', re.DOTALL)
_LAST_DIMENSION = re.compile(rb"<dim>(-?\d+)</dim>\s*</port>")


def encoder_kind(folder: Path) -> EncoderKind | None:
    """Tell what the model of a folder encodes; nothing for one that generates or is unknown.

    Files of sentence-transformers tell first, then the architecture in `config.json`, then
    the names and sizes of the model's outputs. Never raises.
    """
    description = folder / "openvino_model.xml"
    try:
        if not description.is_file():
            return None
        if pools_by_file(folder):
            return "embedding"
        config = json_file(folder, "config.json")
        return _by_architecture(config) or _by_outputs(description.read_bytes(), config)
    except (OSError, ApiError):
        return None


def _by_architecture(config: Any) -> EncoderKind | None:  # noqa: ANN401 - JSON
    listed: Any = config.get("architectures")
    if not isinstance(listed, list) or not listed:
        return None
    name = str(cast("list[object]", listed)[0])
    if name.endswith(_CLASSIFIER):
        return "rerank" if _labels(config) == 1 else None
    plain = name.endswith(("Model", "ForMaskedLM")) and not name.endswith(_GENERATES)
    return "embedding" if plain and _reads_both_ways(config) else None


def _labels(config: Any) -> int | None:  # noqa: ANN401 - JSON
    named: Any = config.get("id2label")
    if isinstance(named, dict):
        return len(cast("dict[str, object]", named))
    count: Any = config.get("num_labels")
    return count if isinstance(count, int) else None


def _reads_both_ways(config: Any) -> bool:  # noqa: ANN401 - JSON
    return not config.get("is_decoder") and not config.get("is_encoder_decoder")


def _by_outputs(description: bytes, config: Any) -> EncoderKind | None:  # noqa: ANN401 - JSON
    names = {name for found in _NAMES.findall(description) for name in found.split(b",")}
    if names & _STATE:
        return None
    if names & _HIDDEN_STATES:
        return "embedding"
    if b"logits" not in names or config.get("architectures"):
        return None
    sizes = [size for one in _RESULT.findall(description) for size in _LAST_DIMENSION.findall(one)]
    return "rerank" if sizes == [b"1"] else None
