"""Export one model to OpenVINO IR: a script for an interpreter that has the libraries.

Started by `_export_process`, never imported: `python _export.py ORDER`, the order as JSON.
Imports nothing of Pegboard. One JSON object a line on stdout: `{"step": ...}` while it works,
then `{"done": ...}` or `{"failed": ...}`; everything that libraries print goes to stderr. Ends
when stdin closes, which it does with the process that started it.
"""

# Runs in an environment of its own, whose libraries are not here.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import errno
import gc
import json
import os
import re
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_LIBRARIES = ("optimum-intel", "optimum", "nncf", "torch", "transformers", "openvino")
_GROUP_SIZES = (128, 64, 32)
_LANGUAGE_MODELS = ("openvino_model.xml", "openvino_language_model.xml")
_SENTENCE_FILES = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")


class Failure(Exception):  # noqa: N818 - what is told, not what went wrong inside
    """Carry a word of `_export_faults` and a detail that names no path."""

    def __init__(self, word: str, detail: str = "") -> None:
        super().__init__(word)
        self.word = word
        self.detail = detail


def main(order: dict[str, Any]) -> int:
    """Export, and tell how it went."""
    # The real stdout is for us alone.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(**fields: Any) -> None:
        lines.write(json.dumps(fields) + "\n")
        lines.flush()

    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        tell(done=export(order, tell))
    except Failure as failure:
        tell(failed=failure.word, detail=failure.detail)
    except Exception as error:  # noqa: BLE001 - libraries raise anything; the parent must know
        traceback.print_exc()
        found = failure_of(error)
        tell(failed=found.word, detail=found.detail)
    else:
        return 0
    return 1


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def export(order: dict[str, Any], tell: Callable[..., None]) -> dict[str, Any]:
    """Fill the target; return what the conversion was."""
    source, target = Path(order["source"]), Path(order["target"])
    work = Path(order["work"])
    weights = order["weight_format"]
    exported = target if weights == "fp16" else work / "exported"
    tell(step="libraries")
    _export_graphs(order, source, exported, tell)
    made: dict[str, Any] = {}
    if weights != "fp16":
        for graph in sorted(exported.glob("openvino_*.xml")):
            made |= _compress(order, graph, target / graph.name, tell)
        for path in exported.iterdir():
            if not path.name.startswith("openvino_"):
                path.replace(target / path.name)
    tell(step="tokenizer")
    _convert_tokenizer(order, source, target)
    tell(step="saving")
    if order["task"] in ("feature-extraction", "text-classification"):
        _copy_sentence_files(source, target)
    return {**made, "versions": dict(_versions())}


def _export_graphs(
    order: dict[str, Any], source: Path, exported: Path, tell: Callable[..., None]
) -> None:
    from optimum.exporters.openvino import convert
    from optimum.exporters.openvino.__main__ import main_export
    from optimum.intel import OVConfig

    inner: Any = getattr(convert, "export_from_model", None)
    if inner is not None:

        def traced(*arguments: Any, **named: Any) -> Any:
            tell(step="tracing")
            return inner(*arguments, **named)

        convert.export_from_model = traced
    tell(step="loading")
    main_export(
        str(source),
        exported,
        task=order["task"],
        library_name="transformers",
        trust_remote_code=order["trust_remote_code"] is True,
        local_files_only=True,
        # Converted below, where its failure is seen.
        convert_tokenizer=False,
        ov_config=OVConfig(dtype="fp16"),
    )
    gc.collect()


def _compress(
    order: dict[str, Any], graph: Path, target: Path, tell: Callable[..., None]
) -> dict[str, Any]:
    import nncf
    import openvino

    _count_weights(tell)
    model = openvino.Core().read_model(graph)
    options: dict[str, Any] = {"mode": nncf.CompressWeightsMode.INT8_ASYM}
    made: dict[str, Any] = {}
    if order["weight_format"] == "int4" and graph.name in _LANGUAGE_MODELS:
        mode = "INT4_SYM" if order["sym"] else "INT4_ASYM"
        made = {
            "group_size": _group_size(model, order["group_size"]),
            "ratio": 1.0 if order["ratio"] is None else order["ratio"],
            "sym": bool(order["sym"]),
        }
        options = {
            "mode": getattr(nncf.CompressWeightsMode, mode),
            "ratio": made["ratio"],
            "group_size": made["group_size"],
        }
    tell(step="compressing")
    openvino.save_model(nncf.compress_weights(model, **options), target)
    del model
    gc.collect()
    return made


def _count_weights(tell: Callable[..., None]) -> None:
    """Have nncf's loop over weights tell how far it is; without that loop nobody knows."""
    from nncf.quantization.algorithms.weight_compression import algorithm

    if not hasattr(algorithm, "track"):
        return

    def track(sequence: Iterable[Any], **options: Any) -> Iterator[Any]:
        items = list(sequence)
        sizes = options.get("weights") or [1] * len(items)
        done, total = 0, sum(sizes)
        for item, size in zip(items, sizes, strict=True):
            yield item
            done += size
            tell(step="compressing", percent=round(100 * done / max(total, 1), 1))

    algorithm.track = track


def _group_size(model: Any, wanted: int | None) -> int:
    """Return a size that divides the channels of every matrix; -1 where none does."""
    channels = set(_channels(model))
    if wanted is None:
        fitting = [size for size in _GROUP_SIZES if all(count % size == 0 for count in channels)]
        return fitting[0] if fitting else -1
    misfits = sorted(count for count in channels if wanted > 0 and count % wanted)
    if misfits:
        raise Failure("group_size", f"{misfits[0]}")
    return wanted


def _channels(model: Any) -> Iterator[int]:
    for operation in model.get_ops():
        if operation.get_type_name() != "MatMul":
            continue
        weight = operation.input_value(1).get_node()
        if weight.get_type_name() == "Convert":
            weight = weight.input_value(0).get_node()
        if weight.get_type_name() == "Constant" and len(weight.shape) >= 2:
            transposed = operation.get_attributes().get("transpose_b")
            yield int(weight.shape[-1] if transposed else weight.shape[-2])


def _convert_tokenizer(order: dict[str, Any], source: Path, target: Path) -> None:
    import openvino
    from openvino_tokenizers import convert_tokenizer
    from transformers import AutoTokenizer

    generates = order["task"] not in ("feature-extraction", "text-classification")
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, trust_remote_code=order["trust_remote_code"] is True
        )
        if generates:
            tokenizer.padding_side = tokenizer.truncation_side = "left"
        texts = 2 if order["task"] == "text-classification" else 1
        made = convert_tokenizer(tokenizer, with_detokenizer=generates, number_of_inputs=texts)
    except OSError as error:
        if failure_of(error).word == "disk_full":
            raise
        raise Failure("tokenizer_missing") from error
    except Exception as error:
        failure = failure_of(error)
        raise (failure if failure.word != "unknown" else Failure("tokenizer_unknown")) from error
    # Those of the model before, if the export saved any.
    names = ("openvino_tokenizer.xml", "openvino_detokenizer.xml")
    models = made if isinstance(made, tuple) else (made,)
    for graph, name in zip(models, names, strict=False):
        openvino.save_model(graph, target / name)
    tokenizer.save_pretrained(target)


def _copy_sentence_files(source: Path, target: Path) -> None:
    """Copy what tells how vectors are pooled: an export leaves it out."""
    for name in _SENTENCE_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    for config in source.glob("*_*/config.json"):
        (target / config.parent.name).mkdir(exist_ok=True)
        shutil.copyfile(config, target / config.parent.name / "config.json")


def _versions() -> Iterator[tuple[str, str]]:
    for name in _LIBRARIES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


_SIGNS = (
    ("torchvision", r"torchvision::|torchvision"),
    ("remote_code", r"trust_remote_code"),
    ("disk_full", r"[Nn]o space left|os error 28"),
    (
        "out_of_memory",
        r"not enough memory|[Cc]annot allocate memory|bad allocation|DefaultCPUAlloc",
    ),
    ("gated", r"[Gg]ated repo|401 Client Error|403 Client Error"),
    ("architecture_unknown", r"model type `|architecture|Unrecognized model|custom or unsupported"),
    ("task_unsupported", r"only supports the tasks"),
    ("version", r"[Mm]aximum required is|[Mm]inimum required|requires transformers"),
    (
        "weights_missing",
        r"no file named|SafetensorError|[Ee]rror while deserializing|HeaderTooLarge",
    ),
    ("config_broken", r"is not a valid JSON file|JSONDecodeError"),
)
"""What messages of libraries mean; the first that is found counts."""


def failure_of(error: BaseException) -> Failure:
    """Tell what an error of a library means, along its chain of causes."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    for one in chain:
        if isinstance(one, MemoryError):
            return Failure("out_of_memory")
        if isinstance(one, OSError) and one.errno == errno.ENOSPC:
            return Failure("disk_full")
        if isinstance(one, ModuleNotFoundError):
            name = re.sub(r"[^\w.]", "", one.name or "")
            return Failure("module_missing", name[:60])
    text = "\n".join(f"{type(one).__name__}: {one}" for one in chain)
    for word, sign in _SIGNS:
        if re.search(sign, text):
            return Failure(word)
    return Failure("unknown")


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
