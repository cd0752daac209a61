"""Which files and folders are whole models as they are; the others need a conversion first.

Pure Python and cheap: headers, ends and sizes, never weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from pegboard_contracts.errors import ApiError

from pegboard_backends._openvino.gguf_file import read_gguf
from pegboard_backends._openvino.model_files import (
    ENCODER_PAIRS,
    TEXT_PAIRS,
    check_model_folder,
    read_manifest,
)

_END_BYTES = 4096
_MOST_CONFIG_BYTES = 4 << 20


def model_source(source: Path) -> Path:
    """Return the GGUF file of a folder that holds exactly one and no IR, else the path itself."""
    if source.is_dir() and not (source / "openvino_model.xml").exists():
        found = [path for path in source.iterdir() if path.suffix.lower() == ".gguf"]
        if len(found) == 1:
            return found[0]
    return source


def is_whole_text_model(source: Path) -> bool:
    """Tell whether a text model can be opened: a whole GGUF file, or IR with its tokenizers."""
    try:
        source = model_source(source)
        if source.is_dir():
            return _is_whole_folder(source, TEXT_PAIRS)
        return source.suffix.lower() == ".gguf" and bool(read_gguf(source).tensors)
    except (OSError, ApiError):
        return False


def is_whole_encoder(source: Path) -> bool:
    """Tell whether an encoder can be opened: IR with its tokenizer."""
    try:
        return _is_whole_folder(source, ENCODER_PAIRS)
    except (OSError, ApiError):
        return False


def _is_whole_folder(folder: Path, pairs: Sequence[str]) -> bool:
    check_model_folder(folder, pairs)
    whole = all(_is_whole_description(folder / f"{pair}.xml") for pair in pairs)
    return whole and (_has_config(folder) or read_manifest(folder) is not None)


def _is_whole_description(path: Path) -> bool:
    """Tell whether a description has its first and its last tag."""
    with path.open("rb") as file:
        head = file.read(_END_BYTES)
        file.seek(max(0, path.stat().st_size - _END_BYTES))
        return b"<net" in head and b"</net>" in file.read(_END_BYTES)


def _has_config(folder: Path) -> bool:
    path = folder / "config.json"
    if not path.is_file() or path.stat().st_size > _MOST_CONFIG_BYTES:
        return False
    try:
        msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError:
        return False
    return True
