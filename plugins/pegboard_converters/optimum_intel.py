"""Models of transformers to OpenVINO IR, with optimum-intel and nncf.

The export runs in a process of its own, in whichever interpreter has the libraries, so that
torch need not be where models are served. Local files only, without tokens. A result is
complete: the graph with its weights, the tokenizer, and the detokenizer of a model that
generates.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import msgspec
from pegboard_contracts.converters import ConversionOrder, Converter, Report, Reporter
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.models import Phase
from pegboard_contracts.plugin import PluginSettings
from pydantic import Field

from pegboard_converters._export_faults import fault_of, not_installed
from pegboard_converters._export_process import run_export
from pegboard_converters._options import check_options

_TASKS = {
    "openvino-genai": "text-generation-with-past",
    "openvino-embeddings": "feature-extraction",
    "openvino-rerank": "text-classification",
    "openvino-vlm": "image-text-to-text",
}
_DEFAULT_WEIGHT_FORMAT = "int8"
_TOKENIZERS = ("openvino_tokenizer", "openvino_detokenizer")
_MODULES = ("torch", "transformers", "optimum", "nncf", "openvino", "openvino_tokenizers")
_PROBE = (
    "import sys; from importlib.util import find_spec; "
    "print(*[name for name in sys.argv[1:] if find_spec(name) is None])"
)
_PROBE_SECONDS = 30
_WORK = ".export"
_RECORD = "pegboard-conversion.json"


class Settings(PluginSettings):
    """Settings of `[plugins.optimum_intel]`."""

    python: str | None = Field(
        default=None,
        description="Interpreter of an environment with torch and optimum-intel; unset, the "
        "server's own.",
    )


class ConversionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Say in `pegboard-conversion.json` how a folder was made."""

    model: str
    source: str
    backend: str
    weight_format: str
    group_size: int | None = None
    ratio: float | None = None
    sym: bool | None = None
    versions: dict[str, str] = {}


class OptimumIntel(Converter):
    """Convert models for the OpenVINO backends."""

    summary = "models of transformers to OpenVINO IR with optimum-intel"
    model_backends = tuple(_TASKS)
    default_weight_format = _DEFAULT_WEIGHT_FORMAT
    Settings = Settings

    def check(self, order: ConversionOrder) -> None:
        """Check the options, then whether the interpreter has the libraries; takes 0.1 s."""
        if order.backend not in _TASKS:
            words = ", ".join(_TASKS)
            message = f"Models of this 'backend' are not converted; those of {words} are."
            raise invalid_request(message, param="backend")
        check_options(order)
        if missing := self._missing_modules():
            raise not_installed(missing)

    def convert(self, order: ConversionOrder, report: Reporter) -> None:
        """Export and compress, then look whether everything is there."""
        report(Report(phase=Phase.CONVERTING, message="starting the converter"))
        _check_source(order.source)
        weight_format = order.weight_format or _DEFAULT_WEIGHT_FORMAT
        work = order.target / _WORK
        asked = {
            "source": str(order.source),
            "target": str(order.target),
            "work": str(work),
            "task": _TASKS[order.backend],
            "weight_format": weight_format,
            "group_size": order.group_size,
            "ratio": order.ratio,
            "sym": order.sym,
            "trust_remote_code": order.trust_remote_code is True,
        }
        made = run_export(self._python(), asked, report)
        shutil.rmtree(work, ignore_errors=True)
        _check_result(order)
        record = ConversionRecord(
            model=order.model,
            source=order.source.name,
            backend=order.backend,
            weight_format=weight_format,
            **made,
        )
        (order.target / _RECORD).write_bytes(msgspec.json.encode(record))

    def _python(self) -> str:
        return cast("Settings", self.settings).python or sys.executable

    def _missing_modules(self) -> list[str]:
        command = [self._python(), "-c", _PROBE, *_MODULES]
        try:
            done = subprocess.run(  # noqa: S603 - the operator's interpreter
                command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError):
            message = (
                "The interpreter in the setting plugins.optimum_intel.python does not run; "
                "correct its path."
            )
            raise ApiError(501, message, code="converter_not_installed") from None
        return done.stdout.split()


def _check_source(source: Path) -> None:
    if not source.is_dir() or not (source / "config.json").is_file():
        message = (
            "There is no model of transformers to convert: a folder with config.json, weights "
            "and tokenizer is needed."
        )
        raise invalid_request(message, param="source_model", code="invalid_model_file")


def _check_result(order: ConversionOrder) -> None:
    """Check for every file: a converter that ends well may have left some out."""
    graphs = [path.stem for path in order.target.glob("openvino_*model.xml")]
    generates = order.backend in ("openvino-genai", "openvino-vlm")
    pairs = [*(graphs or ["openvino_model"]), *(_TOKENIZERS if generates else _TOKENIZERS[:1])]
    for path in (order.target / (pair + suffix) for pair in pairs for suffix in (".xml", ".bin")):
        if not path.is_file() or path.stat().st_size == 0:
            raise fault_of("incomplete", path.name)
    if not (order.target / "config.json").is_file():
        raise fault_of("incomplete", "config.json")


plugin = OptimumIntel
