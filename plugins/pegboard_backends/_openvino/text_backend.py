"""What the plugins of text models share, whatever the device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec
from pegboard_contracts.backend import (
    Backend,
    Device,
    EngineDescription,
    EngineOrder,
    ModelFacts,
)
from pegboard_contracts.engine import Engine, PromptTokenizer
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.plugin import PluginSettings
from pydantic import Field

from pegboard_backends._openvino.completeness import is_whole_text_model
from pegboard_backends._openvino.devices import DeviceExpression, family_of, parse_device
from pegboard_backends._openvino.discovery import discover
from pegboard_backends._openvino.facts import text_facts
from pegboard_backends._openvino.opening import (
    GIGABYTE,
    EngineOptions,
    PrecisionHint,
    default_cache_gigabytes,
    engine_options,
    open_batching_engine,
    open_folder_tokenizer,
)


class TextSettings(PluginSettings):
    """Settings of one device's plugin; a catalogue entry's options win over them."""

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


class TextBackend(Backend):
    """Serve text models on the expressions of `families`, with continuous batching."""

    modules = ("openvino", "openvino_genai")
    extra = "openvino"
    model_backends = ("openvino-genai",)
    Settings: ClassVar[type[PluginSettings]] = TextSettings

    families: ClassVar[tuple[str, ...]] = ()
    """The single devices that the plugin serves, without their index."""

    small_cache: ClassVar[bool] = True
    """Whether a key-value cache has 8 bits a number when nothing else is set."""

    most_default_context: ClassVar[int | None] = None
    """The longest context that a model gets when none is configured."""

    def serves(self, model_backend: str, device: str) -> bool:
        """Serve single devices of its families, in any case."""
        if model_backend not in self.model_backends:
            return False
        try:
            expression = parse_device(device)
        except ApiError:
            return False
        return not expression.meta and expression.families <= set(self.families)

    def can_serve(self, source: Path) -> bool:
        """Serve whole GGUF files, folders with exactly one, and complete folders of IR."""
        return is_whole_text_model(source)

    def facts(self, source: Path) -> ModelFacts:
        """Read the files; the cache is what the memory that is free now would give it."""
        found = text_facts(source, small_cache=self.small_cache)
        most, default = self.most_default_context, found.default_context_tokens
        if most is None:
            return msgspec.structs.replace(found, cache_bytes=default_cache_gigabytes() * GIGABYTE)
        # Lengths are fixed: the cache is of exactly one context.
        return msgspec.structs.replace(found, default_context_tokens=min(default or most, most))

    def check_device(self, device: str) -> None:
        """Refuse what is no device expression."""
        parse_device(device)

    def devices(self, *, refresh: bool = False) -> Sequence[Device]:
        """List the devices of its families, usable or not, as OpenVINO tells of them."""
        found = discover(refresh=refresh)
        return [device for device in found if family_of(device.name) in self.families]

    def describe_engine(self, order: EngineOrder) -> EngineDescription:
        """Check the model's files and describe the engine; reads headers, no weights.

        Whether the device is there is seen when the engine is opened.
        """
        expression = parse_device(order.device)
        if not self.serves(self.model_backends[0], order.device):
            message = f"This backend does not serve the device {expression.text}."
            raise invalid_request(message, param="device", code="device_not_served")
        order = msgspec.structs.replace(order, device=expression.text)
        settings = cast("TextSettings", self.settings)
        options = engine_options(order, self.defaults(expression) | settings.model_dump())
        return EngineDescription(backend=self.name, options=options)

    def defaults(self, expression: DeviceExpression) -> dict[str, Any]:
        """Return options that differ from the plugin's settings on this device."""
        del expression
        return {}

    def open_engine(self, options: dict[str, Any]) -> Engine:
        """Open the engine; a GGUF file is converted once, which takes some seconds."""
        return open_batching_engine(msgspec.convert(options, EngineOptions))

    def open_tokenizer(self, options: dict[str, Any]) -> PromptTokenizer:
        """Open the tokenizer of the same model."""
        return open_folder_tokenizer(msgspec.convert(options, EngineOptions))
