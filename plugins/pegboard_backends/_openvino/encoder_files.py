"""What the files of an embedding or rerank model say: pooling, lengths, prompts.

The files are those of sentence-transformers, which an export does not copy by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from pegboard_contracts.errors import invalid_request

from pegboard_backends._openvino.model_files import (
    ENCODER_PAIRS,
    check_model_folder,
    context_tokens_of,
    invalid_model_file,
    json_file,
    positive,
)

Pooling = Literal["cls", "mean", "max", "lasttoken"]
Activation = Literal["sigmoid", "identity", "softmax"]

_POOLING_KEYS: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS: dict[str, Activation] = {
    "Sigmoid": "sigmoid",
    "Identity": "identity",
    "Softmax": "softmax",
}
_KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet")
"""Families whose first positions belong to padding: two of them are no tokens."""


class EncoderFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a usable folder.

    `pooling` is `None` when its files do not tell. `smaller_dimensions` is `None` when any
    length is allowed.
    """

    folder: Path
    max_tokens: int | None
    pooling: Pooling | None
    normalize: bool
    vocabulary: int | None
    smaller_dimensions: tuple[int, ...] | None
    prompts: dict[str, str]
    default_prompt: str | None


def read_encoder_files(folder: Path) -> EncoderFiles:
    """Check a folder and read what its files say.

    Raises `ApiError` 400 that names what is missing, broken, or not known here.
    """
    check_model_folder(folder, ENCODER_PAIRS)
    config = json_file(folder, "config.json")
    modules = _modules(folder)
    sentences = json_file(folder, "config_sentence_transformers.json")
    prompts: Any = sentences.get("prompts")
    default: Any = sentences.get("default_prompt_name")
    named = _texts(prompts)
    pooling = json_file(folder, f"{modules.get('Pooling', '1_Pooling')}/config.json")
    if named and pooling.get("include_prompt") is False:
        message = "This model leaves its prompts out of the pooling, which is not supported."
        raise invalid_model_file(message)
    return EncoderFiles(
        folder=folder,
        max_tokens=_max_tokens(folder, config),
        pooling=_pooling(pooling),
        normalize="Normalize" in modules,
        vocabulary=positive(config.get("vocab_size")),
        smaller_dimensions=_smaller_dimensions(config),
        prompts=named,
        default_prompt=default if isinstance(default, str) and default in named else None,
    )


def pools_by_file(folder: Path) -> bool:
    """Tell whether a folder holds the pooling of sentence-transformers.

    Raises `ApiError` 400 for files that are broken.
    """
    return bool(json_file(folder, f"{_modules(folder).get('Pooling', '1_Pooling')}/config.json"))


def _modules(folder: Path) -> dict[str, str]:
    """Return the path of each module of `modules.json` by the last part of its type."""
    path = folder / "modules.json"
    if not path.is_file():
        return {}
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[dict[str, Any]])
    except msgspec.DecodeError:
        message = f"'modules.json' in '{folder.name}' is no list of objects; copy it again."
        raise invalid_model_file(message) from None
    found: dict[str, str] = {}
    for entry in entries:
        name = str(entry.get("type", "")).rpartition(".")[2]
        if name not in _KNOWN_MODULES:
            message = f"This model has a module '{name[:40]}' behind its transformer; only "
            raise invalid_model_file(message + "pooling and normalization are supported.")
        where = str(entry.get("path", ""))
        if Path(where).is_absolute() or ".." in Path(where).parts:
            raise invalid_model_file("'modules.json' points out of its folder; correct it.")
        found[name] = where
    return found


def _pooling(config: Mapping[str, Any]) -> Pooling | None:
    if not config:
        return None
    modes = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    named: Any = config.get("pooling_mode")
    if isinstance(named, str):
        modes = [key for key, word in _POOLING_KEYS.items() if word == named] or [named]
    if len(modes) != 1 or modes[0] not in _POOLING_KEYS:
        words = ", ".join(sorted(_POOLING_KEYS.values()))
        raise invalid_model_file(f"This model's pooling is not supported; known are {words}.")
    return _POOLING_KEYS[modes[0]]


def read_activation(folder: Path) -> Activation | None:
    """Return what a rerank model's numbers go through, as sentence-transformers writes it.

    Raises `ApiError` 400 `activation_unknown` for one that is not known here.
    """
    config = json_file(folder, "config.json")
    section: Any = config.get("sentence_transformers")
    named: Any = config.get("sbert_ce_default_activation_function")
    if isinstance(section, Mapping):
        named = cast("Mapping[str, Any]", section).get("activation_fn", named)
    if named is None:
        return None
    word = str(named).rpartition(".")[2].removesuffix("()")
    if word not in _ACTIVATIONS:
        message = (
            f"This model's activation '{word[:40]}' is not known; set the option 'activation' of "
            "its catalogue entry to sigmoid, identity or softmax."
        )
        raise invalid_request(message, param="activation", code="activation_unknown")
    return _ACTIVATIONS[word]


def _max_tokens(folder: Path, config: Mapping[str, Any]) -> int | None:
    positions = context_tokens_of(config)
    if positions is not None and config.get("model_type") in _OFFSET_POSITIONS:
        positions -= 2
    sentence = positive(json_file(folder, "sentence_bert_config.json").get("max_seq_length"))
    tokenizer = positive(json_file(folder, "tokenizer_config.json").get("model_max_length"))
    own = sentence or tokenizer
    known = [value for value in (own, positions) if value is not None]
    return min(known, default=None)


def _smaller_dimensions(config: Mapping[str, Any]) -> tuple[int, ...] | None:
    listed: Any = config.get("matryoshka_dimensions")
    if isinstance(listed, list):
        sizes = [positive(size) for size in cast("list[object]", listed)]
        return tuple(size for size in sizes if size is not None)
    return None if config.get("is_matryoshka") is True else ()


def _texts(value: Any) -> dict[str, str]:  # noqa: ANN401 - JSON
    try:
        return msgspec.convert(value or {}, dict[str, str])
    except msgspec.ValidationError:
        return {}


def needs_pooling(folder: Path) -> Exception:
    """Make the 400 of an embedding model whose files do not tell how it pools."""
    message = (
        f"'{folder.name}' does not say how its vectors are pooled. Copy 1_Pooling/config.json and "
        "modules.json of the original model into it, or set the option 'pooling' of the catalogue "
        "entry to cls, mean, max or lasttoken."
    )
    return invalid_request(message, param="pooling", code="pooling_unknown")
