"""A folder of OpenVINO IR: what must be in it and what its JSON files say.

Pure Python, so that the server can refuse a folder without importing OpenVINO.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from pegboard_contracts.engine import TemplateSource
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.generation import Sampling

MANIFEST = "pegboard.json"
"""What we add to a folder that we converted: see `Manifest`."""

TEXT_PAIRS = ("openvino_model", "openvino_tokenizer", "openvino_detokenizer")
"""What a folder of a model that generates text must hold, each as .xml and .bin."""

ENCODER_PAIRS = ("openvino_model", "openvino_tokenizer")
"""The same of a model that generates nothing."""

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
_COMPRESSED = re.compile(rb'element_type="(?:u4|i4|u8|i8|nf4)" shape="\d+, ?\d+')
_MOST_TOKENS = 1 << 24


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Say what the source file of a converted folder said, and the size of each file."""

    context_tokens: int | None
    sampling: Sampling
    end_tokens: tuple[int, ...]
    repaired_matrices: int
    sizes: dict[str, int]


class _NamedTemplate(msgspec.Struct, frozen=True):
    name: str
    template: str


class ModelFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a usable folder.

    `end_tokens` are the ids that end an answer according to its files; the engine knows
    further ones. `compressed` tells whether matrices have 8 bits a weight or fewer.
    """

    folder: Path
    context_tokens: int | None
    sampling: Sampling
    end_tokens: tuple[int, ...]
    compressed: bool


def read_model_files(folder: Path) -> ModelFiles:
    """Check a folder and read what the engine needs to know of it.

    Raises `ApiError` 400 that names the missing or broken file.
    """
    check_model_folder(folder)
    compressed = has_compressed_weights(folder)
    manifest = read_manifest(folder)
    if manifest is not None:
        return ModelFiles(
            folder=folder,
            context_tokens=manifest.context_tokens,
            sampling=manifest.sampling,
            end_tokens=manifest.end_tokens,
            compressed=compressed,
        )
    generation, config = (
        json_file(folder, "generation_config.json"),
        json_file(folder, "config.json"),
    )
    return ModelFiles(
        folder=folder,
        context_tokens=context_tokens_of(config),
        sampling=_sampling(generation),
        end_tokens=_end_tokens(generation, config),
        compressed=compressed,
    )


def has_compressed_weights(folder: Path) -> bool:
    """Tell whether a model's matrices have 8 bits a weight or fewer."""
    return _COMPRESSED.search((folder / "openvino_model.xml").read_bytes()) is not None


def check_model_folder(folder: Path, pairs: Sequence[str] = TEXT_PAIRS) -> None:
    """Check that a folder holds a model with its tokenizer; raises `ApiError` 400."""
    if not folder.is_dir():
        raise invalid_model_file(f"'{folder.name}' is no folder of OpenVINO IR.")
    for pair in pairs:
        for suffix in (".xml", ".bin"):
            path = folder / (pair + suffix)
            if not path.is_file() or path.stat().st_size == 0:
                hint = "export the model again, with its tokenizer"
                raise invalid_model_file(f"'{path.name}' is missing in '{folder.name}'; {hint}.")


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder that we converted and that is whole, else nothing."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
        sizes = {name: (folder / name).stat().st_size for name in manifest.sizes}
    except (OSError, msgspec.DecodeError):
        return None
    return manifest if sizes == manifest.sizes else None


def read_template_source(
    folder: Path, *, embedded: str, bos_token: str, eos_token: str
) -> TemplateSource:
    """Find the chat template: `chat_template.jinja`, `tokenizer_config.json`, then `embedded`.

    `embedded` is the template inside the tokenizer's IR, which may be empty.
    """
    path = folder / "chat_template.jinja"
    template: Any = None
    if path.is_file():
        template = path.read_text("utf-8")
    named = json_file(folder, "tokenizer_config.json").get("chat_template")
    tool_template: Any = None
    if isinstance(named, list):
        templates = _named_templates(cast("object", named))
        named, tool_template = templates.get("default"), templates.get("tool_use")
    template = template or named or embedded
    return TemplateSource(
        template=template if isinstance(template, str) and template else None,
        tool_template=tool_template if isinstance(tool_template, str) else None,
        bos_token=bos_token,
        eos_token=eos_token,
    )


def _named_templates(entries: object) -> dict[str, str]:
    try:
        templates = msgspec.convert(entries, list[_NamedTemplate])
    except msgspec.ValidationError:
        return {}
    return {entry.name: entry.template for entry in templates}


def invalid_model_file(message: str) -> ApiError:
    """Make the 400 of a file that is missing or broken."""
    return invalid_request(message, code="invalid_model_file")


def json_file(folder: Path, name: str) -> Mapping[str, Any]:
    """Return the object of a JSON file, an empty one without the file; raises `ApiError` 400."""
    path = folder / name
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError:
        raise invalid_model_file(
            f"'{name}' in '{folder.name}' is no JSON object; export it again."
        ) from None


def context_tokens_of(config: Mapping[str, Any]) -> int | None:
    """Return the length of the context that a `config.json` names.

    A factor of scaled rotary embeddings counts where the length that it stretches is named.
    """
    nested: Any = config.get("text_config")
    sections: list[Any] = [config, nested]
    for section in sections:
        if not isinstance(section, Mapping):
            continue
        named = cast("Mapping[str, Any]", section)
        for key in _CONTEXT_KEYS:
            if value := positive(named.get(key)):
                scaling = named.get("rope_scaling") or named.get("rope_parameters")
                return max(value, _stretched(scaling))
    return None


def _stretched(scaling: Any) -> int:  # noqa: ANN401 - JSON
    if not isinstance(scaling, Mapping):
        return 0
    named = cast("Mapping[str, Any]", scaling)
    original = positive(named.get("original_max_position_embeddings"))
    factor: Any = named.get("factor")
    if original is None or not isinstance(factor, int | float) or not 1 <= factor <= _MOST_TOKENS:
        return 0
    return min(int(original * factor), _MOST_TOKENS)


def positive(value: Any) -> int | None:  # noqa: ANN401 - JSON
    """Return a length or count of tokens that makes sense, else nothing."""
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_TOKENS
    return value if usable else None


def _end_tokens(*files: Mapping[str, Any]) -> tuple[int, ...]:
    """Return every end that a file declares, each once."""
    ends = (end for file in files for end in _token_ids(file.get("eos_token_id")))
    return tuple(dict.fromkeys(ends))


def _token_ids(value: Any) -> tuple[int, ...]:  # noqa: ANN401 - JSON
    if not isinstance(value, list):
        value = [value]
    return tuple(v for v in cast("list[object]", value) if type(v) is int and v >= 0)


def _sampling(generation: Mapping[str, Any]) -> Sampling:
    return sampling_defaults(
        temperature=generation.get("temperature"),
        top_p=generation.get("top_p"),
        top_k=generation.get("top_k"),
        min_p=generation.get("min_p"),
        repetition_penalty=generation.get("repetition_penalty"),
    )


def sampling_defaults(**values: object) -> Sampling:
    """Keep the defaults of a model that are numbers in their range; the rest is not set."""
    bounds = {
        "temperature": (0, 2),
        "top_p": (1e-6, 1),
        "top_k": (0, 1 << 20),
        "min_p": (0, 0.999),
        "repetition_penalty": (1e-3, 10),
    }
    kept: dict[str, Any] = {}
    for name, (lowest, highest) in bounds.items():
        value = values.get(name)
        if isinstance(value, int | float) and lowest <= value <= highest:
            kept[name] = int(value) if name == "top_k" else float(value)
    return Sampling(**kept)
