"""GGUF to OpenVINO IR, once: the folder appears whole or not at all."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
from filelock import FileLock
from pegboard_contracts.errors import invalid_request

from pegboard_backends._openvino import library
from pegboard_backends._openvino.gguf_file import GgufFile, read_gguf
from pegboard_backends._openvino.model_files import (
    MANIFEST,
    Manifest,
    check_model_folder,
    read_manifest,
    sampling_defaults,
)

logger = logging.getLogger(__name__)

_FORM = 1
"""Grows when what we write changes, so that older folders are made again."""

_STAGING = "staging-"
_UNLIMITED = (1 << 31) - 1


def converted_folder(source: Path, cache_dir: Path) -> Path:
    """Return the IR made from a GGUF file, making it when it is not there yet.

    Takes seconds to minutes the first time; another process that asks at the same moment
    waits. Raises `ApiError` 400 for a file that is broken or that GenAI cannot convert.
    """
    target = cache_dir / ("ir-" + _fingerprint(source))
    if read_manifest(target) is not None:
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(cache_dir / "conversion.lock"):
        if read_manifest(target) is None:
            gguf = read_gguf(source)
            with _staging_folder(cache_dir) as staging:
                _convert(gguf, staging)
                shutil.rmtree(target, ignore_errors=True)
                staging.replace(target)
    return target


def _fingerprint(source: Path) -> str:
    status = source.stat()
    parts = (source.name, status.st_size, status.st_mtime_ns, version("openvino-genai"), _FORM)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@contextmanager
def _staging_folder(cache_dir: Path) -> Generator[Path]:
    for left_over in cache_dir.glob(_STAGING + "*"):
        shutil.rmtree(left_over, ignore_errors=True)
    staging = Path(mkdtemp(prefix=_STAGING, dir=cache_dir))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _convert(gguf: GgufFile, staging: Path) -> None:
    from pegboard_backends._openvino.weight_repair import (  # noqa: PLC0415 - numpy comes with it
        repair_weights,
    )

    # GenAI saves beside the path it is given, so the file is linked into the staging folder.
    linked = staging / "model.gguf"
    _link(gguf.path.resolve(), linked)
    genai = library.genai()
    save = {"enable_save_ov_model": True}
    try:
        genai.ContinuousBatchingPipeline(str(linked), genai.SchedulerConfig(), "CPU", save, save)
    except (RuntimeError, IndexError, ValueError) as error:
        logger.exception("GenAI cannot convert a GGUF file")
        raise _cannot_convert(gguf) from error
    linked.unlink()
    check_model_folder(staging)
    _lift_truncation(staging)
    repaired = staging / "repaired.xml"
    count = repair_weights(staging / "openvino_model.xml", gguf, repaired)
    if count:
        for suffix in (".xml", ".bin"):
            repaired.with_suffix(suffix).replace(staging / ("openvino_model" + suffix))
    _write_manifest(gguf, staging, count)


def _link(source: Path, link: Path) -> None:
    for make in (os.symlink, os.link, shutil.copyfile):
        try:
            make(source, link)
        except OSError:  # no right to link, or another disk: the next way
            continue
        return
    raise OSError(f"cannot link or copy a model file into {link.parent.name}")


def _cannot_convert(gguf: GgufFile) -> Exception:
    kinds = ", ".join(sorted({tensor.kind for tensor in gguf.tensors.values()}))
    message = (
        f"OpenVINO GenAI cannot convert '{gguf.path.name}' (family {gguf.architecture or '?'}, "
        f"tensors {kinds}). Known to work: llama, qwen2 and qwen3 with F16, Q8_0, Q6_K, Q4_0, "
        "Q4_1 and Q4_K tensors; or use a model in OpenVINO IR."
    )
    return invalid_request(message, code="unsupported_model_file")


def _lift_truncation(folder: Path) -> None:
    """Take the limit of 8,192 tokens out of a tokenizer made from a GGUF file.

    The limit is the constant operand of the graph's only `Minimum`. The files are changed
    by hand: a tokenizer graph that Python has held crashes the process at its exit.
    """
    description, weights = folder / "openvino_tokenizer.xml", folder / "openvino_tokenizer.bin"
    text = description.read_text("utf-8")
    root = ET.fromstring(text)  # noqa: S314 - GenAI wrote it a moment ago
    layers = {layer.get("id", ""): layer for layer in root.iter("layer")}
    minima = {key for key, layer in layers.items() if layer.get("type") == "Minimum"}
    operands = [
        layers[edge.get("from-layer", "")]
        for edge in root.iter("edge")
        if edge.get("to-layer") in minima
    ]
    limits = [layer.get("name", "") for layer in operands if layer.get("type") == "Const"]
    if len(minima) != 1 or len(limits) != 1:
        logger.warning("the tokenizer of this model may cut long prompts; they are split")
        return
    constant = rf'(name="{re.escape(limits[0])}"[^>]*>\s*<data [^>]*offset=")\d+(")'
    with weights.open("ab") as file:
        position = file.tell()
        file.write(_UNLIMITED.to_bytes(4, "little"))
    changed, count = re.subn(constant, rf"\g<1>{position}\g<2>", text)
    if count == 1:
        description.write_text(changed, "utf-8")


def _write_manifest(gguf: GgufFile, folder: Path, repaired_matrices: int) -> None:
    data = gguf.metadata
    end_keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    ends: list[Any] = [data.get(key) for key in end_keys]
    manifest = Manifest(
        context_tokens=gguf.context_tokens,
        sampling=sampling_defaults(
            temperature=data.get("general.sampling.temp"),
            top_p=data.get("general.sampling.top_p"),
            top_k=data.get("general.sampling.top_k"),
            min_p=data.get("general.sampling.min_p"),
            repetition_penalty=data.get("general.sampling.penalty_repeat"),
        ),
        end_tokens=tuple(end for end in ends if isinstance(end, int)),
        repaired_matrices=repaired_matrices,
        sizes={path.name: path.stat().st_size for path in folder.iterdir()},
    )
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
