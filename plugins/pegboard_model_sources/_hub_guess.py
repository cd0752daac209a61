"""Whether files that another tool fetched are a whole model, judged by what they say."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from pegboard_model_sources._hub_files import ModelFiles

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_PART = re.compile(r"-\d{5}-of-(\d{5})")
_LONGEST_HEADER = 100_000_000


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


class _Tensor(msgspec.Struct, frozen=True):
    data_offsets: tuple[int, int]


def looks_whole(folder: Path, files: ModelFiles) -> bool:
    """Tell whether nothing is missing that the files themselves speak of."""
    if files.form == "gguf":
        return all(_first_bytes(folder / name, 4) == b"GGUF" for name in files.names)
    if files.form == "ir":
        networks = [name for name in files.names if name.endswith(".xml")]
        return all((folder / name).with_suffix(".bin").is_file() for name in networks)
    if not any(name in files.names for name in _TOKENIZERS):
        return False
    indexes = [name for name in files.names if name.endswith(".index.json") and "/" not in name]
    shards = {shard for name in indexes for shard in _shards(folder / name)}
    weights = {name for name in files.names if name.endswith(".safetensors")}
    numbered = [part for name in files.names if (part := _PART.search(name))]
    shards |= {
        f"{part.string[: part.start()]}-{number:05}-of-{part[1]}{part.string[part.end() :]}"
        for part in numbered
        for number in range(1, int(part[1]) + 1)
    }
    return shards <= set(files.names) and all(_whole_safetensors(folder / n) for n in weights)


def _shards(index: Path) -> set[str]:
    try:
        return set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values())
    except (OSError, msgspec.DecodeError):
        return {""}  # names no file, so the model is not whole


def _whole_safetensors(file: Path) -> bool:
    """Compare the file's size with the one that its header adds up to."""
    length = int.from_bytes(_first_bytes(file, 8), "little")
    if length > _LONGEST_HEADER:
        return False
    header = _first_bytes(file, 8 + length)[8:]
    try:
        parts = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        ends = [
            msgspec.json.decode(part, type=_Tensor).data_offsets[1]
            for name, part in parts.items()
            if name != "__metadata__"
        ]
    except msgspec.DecodeError:
        return False
    return file.stat().st_size == 8 + length + max(ends, default=0)


def _first_bytes(file: Path, count: int) -> bytes:
    with file.open("rb") as content:
        return content.read(count)
