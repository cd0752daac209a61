"""From an engine order to an encoder's options (server), and from options to the open one."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
from pegboard_contracts.backend import EngineOrder
from pegboard_contracts.encoding import EncoderInfo
from pegboard_contracts.engine import EngineInfo
from pegboard_contracts.errors import invalid_request

from pegboard_backends._openvino import library
from pegboard_backends._openvino.core import DeviceCore
from pegboard_backends._openvino.devices import (
    check_available,
    parse_device,
)
from pegboard_backends._openvino.encoder import Finish, FolderEncoder, output_of, pool, scores_of
from pegboard_backends._openvino.encoder_files import (
    Activation,
    EncoderFiles,
    Pooling,
    needs_pooling,
    read_activation,
    read_encoder_files,
)
from pegboard_backends._openvino.encoder_kind import EncoderKind
from pegboard_backends._openvino.encoder_texts import EncoderTokenizer
from pegboard_backends._openvino.npu_guard import without_npu
from pegboard_backends._openvino.opening import PrecisionHint, device_properties, load_fault

logger = logging.getLogger(__name__)

_MOST_LABELS = 2
_MOST_FIXED_TOKENS = 512


class EncoderOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Carry what the child needs; the catalogue entry's `options` may set the later fields.

    `pooling`, `normalize` and `activation` win over the model's files. `smaller_dimensions`
    are the lengths that vectors may be cut to. With `fixed_tokens` the model is compiled for
    one input of that length and every input is padded to it; an NPU takes nothing else.
    """

    kind: EncoderKind
    source: str
    device: str
    context_tokens: int | None = None
    pooling: Pooling | None = None
    normalize: bool | None = None
    smaller_dimensions: tuple[int, ...] | None = None
    activation: Activation | None = None
    fixed_tokens: int | None = None
    precision_hint: PrecisionHint | None = None
    threads: int | None = None
    properties: dict[str, Any] = {}
    device_properties: dict[str, dict[str, Any]] = {}


def encoder_options(
    order: EngineOrder, kind: EncoderKind, defaults: dict[str, Any]
) -> dict[str, Any]:
    """Describe the encoder of an order; the entry's options win over `defaults`.

    Raises `ApiError` 400 for a folder that cannot be served and for unknown options.
    """
    expression = parse_device(order.device)
    fields = {
        **defaults,
        **order.options,
        "kind": kind,
        "source": str(order.source),
        "device": expression.text,
        "context_tokens": order.context_tokens,
    }
    try:
        options = msgspec.convert(fields, EncoderOptions)
    except msgspec.ValidationError as error:
        raise invalid_request(f"The model's options are wrong: {error}.", param="options") from None
    files = read_encoder_files(order.source)
    if options.fixed_tokens is None and "NPU" in expression.families:
        fixed = min(_max_tokens(files, options), _MOST_FIXED_TOKENS)
        options = msgspec.structs.replace(options, fixed_tokens=fixed)
    _max_tokens(files, options)
    if kind == "embedding" and (options.pooling or files.pooling) is None:
        raise needs_pooling(order.source)
    if kind == "rerank" and options.activation is None:
        options = msgspec.structs.replace(options, activation=read_activation(order.source))
    without_npu(expression, order.source)
    plain: dict[str, Any] = msgspec.to_builtins(options)
    return plain


def open_folder_encoder(options: EncoderOptions) -> FolderEncoder:
    """Compile the model and open its tokenizer. Raises `ApiError` 400 with what is wrong."""
    files = read_encoder_files(Path(options.source))
    max_tokens = _max_tokens(files, options)
    compiled = _compiled(files, options)
    tokenizer = EncoderTokenizer(
        files.folder,
        max_tokens=max_tokens,
        vocabulary=files.vocabulary,
        pairs=options.kind == "rerank",
    )
    width = output_of(compiled).partial_shape[-1]
    numbers = int(width.get_length()) if width.is_static else 0
    if options.kind == "rerank":
        finish, described = _scoring(options, numbers), EncoderInfo(kind="rerank")
    else:
        finish, described = _pooling(files, options), _embedding_info(files, options, numbers)
    info = EngineInfo(
        context_tokens=max_tokens,
        architecture_context_tokens=files.max_tokens,
        device=", ".join(str(d).strip("()") for d in compiled.get_property("EXECUTION_DEVICES")),
        properties={
            "precision": compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name(),
            "requested_device": options.device,
        },
        encoder=described,
    )
    return FolderEncoder(compiled, tokenizer, info, finish, options.fixed_tokens)


def _compiled(files: EncoderFiles, options: EncoderOptions) -> Any:  # noqa: ANN401 - OpenVINO's
    expression = without_npu(parse_device(options.device), files.folder)
    properties = device_properties(options, expression)
    if options.precision_hint is not None:
        properties.setdefault("INFERENCE_PRECISION_HINT", options.precision_hint)
    if options.threads is not None:
        properties.setdefault("INFERENCE_NUM_THREADS", options.threads)
    devices = DeviceCore()
    check_available(expression, devices.available())
    devices.check_properties(expression, properties)
    core = library.openvino().Core()
    try:
        model = core.read_model(files.folder / "openvino_model.xml")
        if options.fixed_tokens is not None:
            model.reshape({port: [1, options.fixed_tokens] for port in model.inputs})
        return core.compile_model(model, expression.text, properties)
    except RuntimeError as error:
        logger.exception("OpenVINO cannot load a model")
        raise load_fault(str(error)) from error


def _max_tokens(files: EncoderFiles, options: EncoderOptions) -> int:
    limits = (files.max_tokens, options.context_tokens, options.fixed_tokens)
    known = [value for value in limits if value is not None]
    if min(known, default=1) < 1:
        message = "An input has one token at least; correct 'fixed_tokens'."
        raise invalid_request(message, param="fixed_tokens")
    if not known:
        message = "The model does not say how long its inputs may be; set its max_context_len."
        raise invalid_request(message, param="max_context_len", code="context_length_unknown")
    return min(known)


def _embedding_info(files: EncoderFiles, options: EncoderOptions, dimensions: int) -> EncoderInfo:
    smaller = options.smaller_dimensions
    return EncoderInfo(
        kind="embedding",
        dimensions=dimensions,
        smaller_dimensions=files.smaller_dimensions if smaller is None else smaller,
        prompts=files.prompts,
        default_prompt=files.default_prompt,
    )


def _pooling(files: EncoderFiles, options: EncoderOptions) -> Finish:
    pooling = options.pooling or files.pooling
    if pooling is None:
        raise needs_pooling(files.folder)
    normalize = files.normalize if options.normalize is None else options.normalize
    return lambda hidden, mask: pool(hidden, mask, pooling, normalize=normalize)


def _scoring(options: EncoderOptions, labels: int) -> Finish:
    if not 1 <= labels <= _MOST_LABELS:
        message = f"A rerank model gives one or two numbers for a pair; this one gives {labels}."
        raise invalid_request(message, code="model_kind_mismatch")
    activation = options.activation or ("sigmoid" if labels == 1 else "softmax")
    if activation == "softmax" and labels == 1:
        message = "This model gives one number for a pair, of which 'softmax' makes nothing."
        raise invalid_request(message, param="activation")
    return lambda logits, _: scores_of(logits, activation)
