"""From an engine order to plain options (server), and from options to open things (children)."""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from pegboard_contracts.backend import EngineOrder
from pegboard_contracts.engine import EngineInfo
from pegboard_contracts.errors import ApiError, invalid_request

from pegboard_backends._openvino import library
from pegboard_backends._openvino.completeness import model_source
from pegboard_backends._openvino.conversion import converted_folder
from pegboard_backends._openvino.core import DeviceCore
from pegboard_backends._openvino.devices import (
    DeviceExpression,
    check_available,
    family_of,
    parse_device,
)
from pegboard_backends._openvino.engine import BatchingEngine
from pegboard_backends._openvino.gguf_file import read_gguf
from pegboard_backends._openvino.model_files import ModelFiles, check_model_folder, read_model_files
from pegboard_backends._openvino.npu_guard import without_npu
from pegboard_backends._openvino.prompt_tokenizer import FolderTokenizer

logger = logging.getLogger(__name__)

GIGABYTE = 1 << 30
_MOST_DEFAULT_CACHE_GB = 8

PrecisionHint = Literal["f32", "bf16"]


class HasProperties(Protocol):
    """Be options that carry OpenVINO's own properties."""

    @property
    def properties(self) -> dict[str, Any]:
        """Return those of every device."""
        ...

    @property
    def device_properties(self) -> dict[str, dict[str, Any]]:
        """Return those of single devices, by name."""
        ...


class CacheEviction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let a long answer forget the middle of its context; sizes in tokens, by whole blocks."""

    start_size: int = 32
    recent_size: int = 128
    max_cache_size: int = 672


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Carry what both children need; the catalogue entry's `options` may set the later fields.

    `kv_cache_blocks` fixes the cache exactly and wins over `kv_cache_gb`. `own_precision`
    leaves the precision of activations to the device. `response_tokens` is what a device
    with fixed lengths keeps for the answer. `properties` are OpenVINO's own and
    win over everything set here; `device_properties` hold them by device.
    """

    source: str
    cache_dir: str
    device: str
    context_tokens: int | None = None
    kv_cache_gb: float | None = None
    kv_cache_blocks: int | None = None
    max_sequences: int = 32
    max_batched_tokens: int = 256
    prefix_caching: bool = True
    precision_hint: PrecisionHint | None = None
    own_precision: bool = False
    response_tokens: int | None = None
    kv_cache_precision: str | None = None
    cache_eviction: CacheEviction | None = None
    sparse_attention: bool = False
    threads: int | None = None
    streams: int | None = None
    properties: dict[str, Any] = {}
    device_properties: dict[str, dict[str, Any]] = {}


def engine_options(order: EngineOrder, defaults: dict[str, Any]) -> dict[str, Any]:
    """Describe the engine of an order; the entry's options win over `defaults`.

    Raises `ApiError` 400 for a source that cannot be served and for unknown options.
    """
    source = model_source(order.source)
    check_source(source)
    fields = {
        **defaults,
        **order.options,
        "source": str(source),
        "cache_dir": str(order.cache_dir),
        "device": order.device,
        "context_tokens": order.context_tokens,
        "kv_cache_gb": order.kv_cache_gb,
    }
    try:
        options = msgspec.convert(fields, EngineOptions)
    except msgspec.ValidationError as error:
        raise invalid_request(f"The model's options are wrong: {error}.", param="options") from None
    if options.max_sequences < 1 or options.max_batched_tokens < 1:
        raise invalid_request("max_sequences and max_batched_tokens are at least 1.")
    plain: dict[str, Any] = msgspec.to_builtins(options)
    return plain


def check_source(source: Path) -> None:
    """Refuse what is neither a whole GGUF file nor a complete folder of IR."""
    if source.is_dir():
        check_model_folder(source)
    elif source.suffix.lower() == ".gguf":
        read_gguf(source)
    else:
        message = f"'{source.name}' is neither a .gguf file nor a folder of OpenVINO IR."
        raise invalid_request(message, code="invalid_model_file")


def open_batching_engine(options: EngineOptions) -> BatchingEngine:
    """Open the model with continuous batching, converting a GGUF file first.

    Raises `ApiError` 400 when GenAI cannot load it as asked.
    """
    expression = parse_device(options.device)
    core = DeviceCore()
    files = read_model_files(model_folder(options))
    expression = without_npu(expression, files.folder)
    check_available(expression, core.available())
    context_tokens = context_tokens_for(files, options)
    properties = engine_properties(files, options, expression)
    core.check_properties(expression, properties)
    genai = library.genai()
    scheduler = _scheduler(options)
    try:
        pipeline = genai.ContinuousBatchingPipeline(
            str(files.folder), scheduler, expression.text, properties
        )
    except RuntimeError as error:
        logger.exception("OpenVINO cannot load a model")
        raise load_fault(str(error)) from error
    info = EngineInfo(
        context_tokens=context_tokens,
        architecture_context_tokens=files.context_tokens,
        sampling=files.sampling,
        max_sequences=options.max_sequences,
        device=core.execution_devices(expression) if expression.meta else expression.text,
        grammar=True,
        beam_search=True,
        properties={
            **{name: str(value) for name, value in properties.items()},
            "requested_device": options.device,
            "kv_cache_gb": scheduler.cache_size,
            "max_batched_tokens": options.max_batched_tokens,
            "prefix_caching": options.prefix_caching,
        },
    )
    return BatchingEngine(
        pipeline, info, end_tokens=files.end_tokens, prefix_caching=options.prefix_caching
    )


def open_folder_tokenizer(options: EngineOptions) -> FolderTokenizer:
    """Open the tokenizer of the same model."""
    return FolderTokenizer(model_folder(options), Path(options.cache_dir))


def model_folder(options: EngineOptions) -> Path:
    """Return the folder of IR, made from a GGUF file when it is not there yet."""
    source = Path(options.source)
    return source if source.is_dir() else converted_folder(source, Path(options.cache_dir))


def context_tokens_for(files: ModelFiles, options: EngineOptions) -> int:
    """Return the context that was asked for, at most the model's own; raises `ApiError` 400."""
    known, wanted = files.context_tokens, options.context_tokens
    if known is None and wanted is None:
        message = "The model does not say how long its context is; set its max_context_len."
        raise invalid_request(message, param="max_context_len", code="context_length_unknown")
    return min(value for value in (known, wanted) if value is not None)


def _scheduler(options: EngineOptions) -> Any:  # noqa: ANN401 - GenAI's
    genai = library.genai()
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = options.max_batched_tokens
    scheduler.enable_prefix_caching = options.prefix_caching
    if options.kv_cache_blocks is None:
        scheduler.cache_size = _cache_gigabytes(options)
    else:
        scheduler.num_kv_blocks = options.kv_cache_blocks
    if (eviction := options.cache_eviction) is not None:
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = genai.CacheEvictionConfig(
            eviction.start_size,
            eviction.recent_size,
            eviction.max_cache_size,
            genai.AggregationMode.NORM_SUM,
        )
    scheduler.use_sparse_attention = options.sparse_attention
    return scheduler


def engine_properties(
    files: ModelFiles, options: EngineOptions, expression: DeviceExpression
) -> dict[str, Any]:
    """Choose the precision of activations, unless it is set.

    With compressed weights f32 decodes 1.4 to 1.7 times faster here for 1 to 8 streams
    and no slower for 32; with 16-bit weights it is slower everywhere.
    """
    own = "f32" if files.compressed and not options.own_precision else None
    chosen: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": options.precision_hint or own,
        "KV_CACHE_PRECISION": options.kv_cache_precision,
        "INFERENCE_NUM_THREADS": options.threads,
        "NUM_STREAMS": options.streams,
    }
    properties = {key: value for key, value in chosen.items() if value is not None}
    return properties | device_properties(options, expression)


def device_properties(options: HasProperties, expression: DeviceExpression) -> dict[str, Any]:
    """Return OpenVINO's own properties for an expression: shared ones, then the device's.

    In an expression of several devices each one's own are nested under its name.
    """
    by_device = {name.upper(): dict(own) for name, own in options.device_properties.items()}
    if not expression.meta:
        (device,) = expression.devices
        family = by_device.get(family_of(device), {})
        return options.properties | family | by_device.get(device, {})
    listed = {d: by_device[d] for d in expression.devices or by_device if d in by_device}
    return options.properties | ({"DEVICE_PROPERTIES": listed} if listed else {})


def _cache_gigabytes(options: EngineOptions) -> int:
    """Return whole gigabytes, which is all GenAI takes."""
    if options.kv_cache_gb is not None:
        return max(1, math.ceil(options.kv_cache_gb))
    return default_cache_gigabytes()


def default_cache_gigabytes() -> int:
    """Return the size of a cache that nothing sizes: a quarter of what is free, 1 to 8 GB."""
    import psutil  # noqa: PLC0415 - the one use of it

    quarter = int(psutil.virtual_memory().available) // 4
    return max(1, min(quarter // GIGABYTE, _MOST_DEFAULT_CACHE_GB))


def load_fault(text: str) -> ApiError:
    """Say what OpenVINO means by the text of an error."""
    if "cache size is larger" in text:
        message = "The KV cache does not fit into this machine's memory; lower --kv-cache-gb."
        return invalid_request(message, param="kv_cache_gb", code="kv_cache_too_large")
    if found := re.search(r"Unsupported property:? ?'?([A-Z_0-9]+)", text):
        message = f"OpenVINO does not know the property {found[1]}."
        return invalid_request(message, param="properties", code="unknown_property")
    message = "OpenVINO cannot load this model; the server's log has the reason."
    return invalid_request(message, code="model_load_failed")
