"""From options to an open stateful engine, with the static lengths that an NPU needs."""

from __future__ import annotations

import logging

from pegboard_contracts.engine import EngineInfo
from pegboard_contracts.errors import invalid_request

from pegboard_backends._openvino import library
from pegboard_backends._openvino.core import DeviceCore
from pegboard_backends._openvino.devices import check_available, parse_device
from pegboard_backends._openvino.model_files import read_model_files
from pegboard_backends._openvino.opening import (
    EngineOptions,
    context_tokens_for,
    engine_properties,
    load_fault,
    model_folder,
)
from pegboard_backends._openvino.stateful_engine import StatefulEngine

logger = logging.getLogger(__name__)

MOST_DEFAULT_CONTEXT = 4096
"""Tokens of the context of a model that none is configured for."""

_LEAST_RESPONSE, _MOST_RESPONSE = 128, 1024


def static_lengths(context_tokens: int, response_tokens: int | None) -> tuple[int, int]:
    """Split a context into the longest prompt and the shortest answer that must fit.

    Without `response_tokens` a quarter is kept for the answer, 128 to 1024 tokens.
    Raises `ApiError` 400 when nothing would be left for a prompt.
    """
    response = response_tokens
    if response is None:
        response = min(max(context_tokens // 4, _LEAST_RESPONSE), _MOST_RESPONSE)
        response = min(response, context_tokens // 2)
    if not 1 <= response < context_tokens:
        message = (
            f"An answer of {response} tokens leaves no room for a prompt in a context of "
            f"{context_tokens}; lower 'response_tokens' or raise the context."
        )
        raise invalid_request(message, param="response_tokens")
    return context_tokens - response, response


def open_stateful_engine(options: EngineOptions) -> StatefulEngine:
    """Open the pipeline for prompts and answers of fixed lengths.

    Raises `ApiError` 400 when the device is not there or OpenVINO cannot load the model.
    """
    expression = parse_device(options.device)
    core = DeviceCore()
    check_available(expression, core.available())
    files = read_model_files(model_folder(options))
    context = context_tokens_for(files, options)
    if options.context_tokens is None:
        context = min(context, MOST_DEFAULT_CONTEXT)
    prompt, response = static_lengths(context, options.response_tokens)
    properties = engine_properties(files, options, expression)
    if "NPU" in expression.families:
        properties = {"MAX_PROMPT_LEN": prompt, "MIN_RESPONSE_LEN": response} | properties
        properties.setdefault("CACHE_DIR", options.cache_dir)
    core.check_properties(expression, properties)
    info = EngineInfo(
        context_tokens=context,
        architecture_context_tokens=files.context_tokens,
        sampling=files.sampling,
        max_sequences=1,
        device=core.execution_devices(expression) if expression.meta else expression.text,
        top_logprobs=None,
        properties={
            **{name: str(value) for name, value in properties.items()},
            "requested_device": expression.text,
            "max_prompt_tokens": prompt,
            "min_response_tokens": response,
        },
    )
    genai = library.genai()
    try:
        return StatefulEngine(
            lambda: genai.LLMPipeline(str(files.folder), expression.text, **properties),
            info,
            end_tokens=files.end_tokens,
            max_prompt_tokens=prompt,
        )
    except RuntimeError as error:
        logger.exception("OpenVINO cannot load a model")
        raise load_fault(str(error)) from error
