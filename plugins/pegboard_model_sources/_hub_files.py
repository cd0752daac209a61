"""Which files of a repository make the model: never the same weights twice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Literal

import msgspec
from pegboard_contracts.errors import ApiError

from pegboard_model_sources._hub_address import is_file_name

ModelForm = Literal["ir", "gguf", "weights"]

QUANTIZATIONS = (
    "Q4_K_M",
    "Q4_1",
    "Q4_0",
    "Q8_0",
    "Q6_K",
    "Q4_K_S",
    "Q5_K_M",
    "F16",
    "FP16",
    "BF16",
)
"""GGUF files in the order of choice when the address names none."""

_IR_SUFFIXES = frozenset(
    {".xml", ".bin", ".json", ".jinja", ".txt", ".model", ".tiktoken", ".spm", ".mapping"}
)
_WEIGHT_SUFFIXES = frozenset(
    {".json", ".jinja", ".txt", ".model", ".tiktoken", ".spm", ".py", ".safetensors"}
)
# Weights of other frameworks and copies in the publisher's own layout.
_FOREIGN_FOLDERS = frozenset(
    {"onnx", "openvino", "original", "coreml", "metal", "flax", "tf", "runs", "gguf", "assets"}
)
_LICENCE = re.compile(r"(?i)(licen[cs]e|notice|use_policy)(\..*)?")
_MODEL_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
_TORCH_WEIGHTS = re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin(\.index\.json)?")
_SPLIT = re.compile(r"(?i)-\d{5}-of-\d{5}\.gguf$")


class ModelFiles(msgspec.Struct, frozen=True):
    """List a model's files by their names in the repository.

    `file` is the one that is opened, `None` where that is the folder.
    """

    form: ModelForm
    names: tuple[str, ...]
    file: str | None = None

    @property
    def servable(self) -> bool:
        """Tell whether a backend opens them as they are."""
        return self.form != "weights"


def choose_files(names: Iterable[str], file: str | None = None) -> ModelFiles:
    """Choose a model's files: `file` alone, else OpenVINO IR, else safetensors, else one GGUF.

    Raises `ApiError` 409 `hf_no_model_files` when there is nothing to choose.
    """
    known = sorted(names)
    if file is not None:
        return _named(known, file)
    if "openvino_model.xml" in known or "openvino_language_model.xml" in known:
        return ModelFiles("ir", tuple(n for n in known if _of_ir(n)))
    weights = _weights(known)
    if weights:
        wanted = {*weights, *(n for n in known if _beside_weights(n))}
        return ModelFiles("weights", tuple(sorted(wanted)))
    return _any_gguf(known)


def _named(names: list[str], file: str) -> ModelFiles:
    if file not in names or not file.lower().endswith(".gguf"):
        ours = ", ".join(n for n in names if n.lower().endswith(".gguf") and is_file_name(n))[:600]
        message = (
            "The repository has no such GGUF file. "
            + (f"It has: {ours}." if ours else "It has no GGUF file at all.")
            + " Name one after '#', or leave it out."
        )
        raise ApiError(409, message, param="source_model", code="hf_no_model_files")
    return ModelFiles("gguf", (file,), file)


def _any_gguf(names: list[str]) -> ModelFiles:
    files = [
        name
        for name in names
        if name.lower().endswith(".gguf")
        and not _SPLIT.search(name)
        and not re.match(r"(?i)(mmproj|imatrix)", PurePosixPath(name).name)
    ]
    if not files:
        message = (
            "The repository has no files of a model that can be used: no OpenVINO IR, no "
            "safetensors or PyTorch weights with a config.json, no GGUF in one file."
        )
        raise ApiError(409, message, param="source_model", code="hf_no_model_files")
    chosen = min(files, key=lambda name: (_rank(name), name.count("/"), name))
    return ModelFiles("gguf", (chosen,), chosen)


def _rank(name: str) -> int:
    for rank, quantization in enumerate(QUANTIZATIONS):
        if re.search(rf"(?i)(?<![A-Z0-9]){quantization}(?![A-Z0-9_])", PurePosixPath(name).stem):
            return rank
    return len(QUANTIZATIONS)


def _of_ir(name: str) -> bool:
    path = PurePosixPath(name)
    if len(path.parts) > 1:
        return path.parts[0] not in _FOREIGN_FOLDERS and path.suffix == ".json"
    if _LICENCE.fullmatch(name):
        return True
    return path.suffix in _IR_SUFFIXES and not _TORCH_WEIGHTS.fullmatch(name)


def _weights(names: list[str]) -> set[str]:
    """Return the weights of the top folder: safetensors, else those of PyTorch."""
    if "config.json" not in names:
        return set()
    top = [name for name in names if "/" not in name]
    usual = {name for name in top if _MODEL_WEIGHTS.fullmatch(name)}
    if usual:
        return usual
    other = {name for name in top if name.endswith(".safetensors") and "adapter" not in name}
    return other or {name for name in top if _TORCH_WEIGHTS.fullmatch(name)}


def _beside_weights(name: str) -> bool:
    path = PurePosixPath(name)
    if path.parts[0] in _FOREIGN_FOLDERS or path.name.startswith("."):
        return False
    if len(path.parts) == 1 and path.suffix == ".safetensors":
        return False
    if _TORCH_WEIGHTS.fullmatch(path.name):
        return False
    return path.suffix in _WEIGHT_SUFFIXES or _LICENCE.fullmatch(path.name) is not None
