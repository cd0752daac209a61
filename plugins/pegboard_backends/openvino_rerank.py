"""Rerank models in OpenVINO IR: cross-encoders that read a query and a document together.

A score is what the model's own files make of its number: its sigmoid, 0 to 1, where they do
not tell, or the second share of two numbers. The option `activation` wins over them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from pegboard_contracts.backend import Backend, EngineDescription, EngineOrder, ModelFacts
from pegboard_contracts.encoding import Encoder, ModelKind
from pegboard_contracts.engine import Engine, PromptTokenizer
from pegboard_contracts.plugin import PluginSettings
from pydantic import Field

from pegboard_backends._openvino.completeness import is_whole_encoder
from pegboard_backends._openvino.devices import parse_device
from pegboard_backends._openvino.encoder_kind import encoder_kind
from pegboard_backends._openvino.encoder_opening import (
    EncoderOptions,
    encoder_options,
    open_folder_encoder,
)
from pegboard_backends._openvino.facts import encoder_facts
from pegboard_backends._openvino.opening import PrecisionHint


class Settings(PluginSettings):
    """Settings of `[plugins.openvino_rerank]`; a catalogue entry's options win over them."""

    precision_hint: PrecisionHint | None = Field(
        default=None, description="Precision of activations; unset, the processor's fastest."
    )
    threads: int | None = Field(
        default=None, ge=1, description="Processor threads of one model; unset, OpenVINO decides."
    )


class OpenVinoRerank(Backend):
    """Serve rerank models."""

    summary = "rerank models (OpenVINO IR) through OpenVINO"
    modules = ("openvino", "openvino_genai")
    extra = "openvino"
    model_backends = ("openvino-rerank",)
    Settings = Settings

    def check_device(self, device: str) -> None:
        """Refuse what is no device expression."""
        parse_device(device)

    def kind_of(self, source: Path) -> ModelKind:
        """Tell that every model of this backend reranks."""
        del source
        return "rerank"

    def recognizes(self, source: Path) -> bool:
        """Recognize folders whose files tell that their model reranks."""
        return encoder_kind(source) == "rerank"

    def can_serve(self, source: Path) -> bool:
        """Serve complete folders of IR."""
        return is_whole_encoder(source)

    def facts(self, source: Path) -> ModelFacts:
        """Read the files; an encoder has no cache."""
        return encoder_facts(source)

    def describe_engine(self, order: EngineOrder) -> EngineDescription:
        """Check the model's files and describe the encoder; reads no weights."""
        options = encoder_options(order, "rerank", self.settings.model_dump())
        return EngineDescription(backend=self.name, options=options, kind="rerank")

    def open_encoder(self, options: dict[str, Any]) -> Encoder:
        """Open the encoder."""
        return open_folder_encoder(msgspec.convert(options, EncoderOptions))

    def open_engine(self, options: dict[str, Any]) -> Engine:
        """Refuse: these models generate nothing."""
        raise NotImplementedError(options["kind"])

    def open_tokenizer(self, options: dict[str, Any]) -> PromptTokenizer:
        """Refuse: the encoder tokenizes."""
        raise NotImplementedError(options["kind"])


plugin = OpenVinoRerank
