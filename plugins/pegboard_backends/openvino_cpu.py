"""The CPU through OpenVINO GenAI: GGUF files and folders of OpenVINO IR.

Answers of all requests are generated together, one token each a step (continuous
batching). Precision: 16-bit models run in bf16 where the processor has it, compressed
ones in f32, which was measured to be faster.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from pegboard_contracts.backend import Backend, Device, EngineDescription, EngineOrder
from pegboard_contracts.engine import Engine, PromptTokenizer
from pegboard_contracts.errors import invalid_request
from pegboard_contracts.plugin import PluginSettings
from pydantic import Field

from pegboard_backends._openvino.opening import (
    EngineOptions,
    PrecisionHint,
    engine_options,
    open_batching_engine,
    open_folder_tokenizer,
)

_DEVICE = "CPU"


class Settings(PluginSettings):
    """Settings of `[plugins.openvino_cpu]`; a catalogue entry's options win over them."""

    max_sequences: int = Field(
        default=32, ge=1, le=1024, description="Requests that are generated together, at most."
    )
    max_batched_tokens: int = Field(
        default=256,
        ge=1,
        description="Tokens of one step, at most; fewer make cancelling faster and prompts slower.",
    )
    prefix_caching: bool = Field(
        default=True, description="Keep the computed start of prompts for later requests."
    )
    precision_hint: PrecisionHint | None = Field(
        default=None,
        description="Precision of activations; unset, f32 for models of 8 bits or fewer.",
    )
    threads: int | None = Field(
        default=None, ge=1, description="Processor threads of one engine; unset, OpenVINO decides."
    )


class OpenVinoCpu(Backend):
    """Serve text models on the CPU."""

    summary = "Text models (GGUF, OpenVINO IR) on the CPU through OpenVINO GenAI"
    modules = ("openvino", "openvino_genai")
    extra = "openvino"
    model_backends = ("openvino-genai",)
    Settings = Settings

    def serves(self, model_backend: str, device: str) -> bool:
        """Serve the device expression `CPU`, in any case."""
        return model_backend in self.model_backends and device.upper() == _DEVICE

    def devices(self) -> Sequence[Device]:
        """Name the processor, without loading OpenVINO into the server."""
        return (Device(name=_DEVICE, full_name=_processor_name()),)

    def describe_engine(self, order: EngineOrder) -> EngineDescription:
        """Check the model's files and describe the engine; reads headers, no weights."""
        if order.device.upper() != _DEVICE:
            message = f"This backend serves only the device {_DEVICE}."
            raise invalid_request(message, param="device", code="device_not_served")
        settings = cast("Settings", self.settings)
        defaults: dict[str, Any] = settings.model_dump(exclude={"threads"})
        if settings.threads is not None:
            defaults["properties"] = {"INFERENCE_NUM_THREADS": settings.threads}
        return EngineDescription(backend=self.name, options=engine_options(order, defaults))

    def open_engine(self, options: dict[str, Any]) -> Engine:
        """Open the engine; a GGUF file is converted once, which takes some seconds."""
        return open_batching_engine(msgspec.convert(options, EngineOptions))

    def open_tokenizer(self, options: dict[str, Any]) -> PromptTokenizer:
        """Open the tokenizer of the same model."""
        return open_folder_tokenizer(msgspec.convert(options, EngineOptions))


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


plugin = OpenVinoCpu
