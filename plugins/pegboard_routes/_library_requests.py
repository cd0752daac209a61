"""Bodies of the routes that register, prepare, cancel and delete models."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pegboard_contracts.lifecycle import ConversionOptions, Registration
from pydantic import Field, StringConstraints, model_validator

from pegboard_routes._native import DeviceWords, ModelRequest, NativeRequest

WeightFormat = Literal["int4", "int8", "fp16"]

_FEWEST_TOKENS = 128
_MOST_TOKENS = 262_144
_MOST_OUTPUT = 65_536
_HUB_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*([@#].*)?")
_ONE_LINE = r"^[^\x00-\x1f\x7f]*$"
_LINES = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
_WITHOUT_OUTPUT = ("openvino-embeddings", "openvino-rerank")


class ConversionFields(NativeRequest):
    """Say how weights are converted; null is what the catalogue or the converter says."""

    group_size: int | None = Field(
        default=None, ge=-1, le=4096, description="Channels a group of weights; -1 is all."
    )
    ratio: float | None = Field(
        default=None, ge=0, le=1, description="Share of the weights in the wanted format."
    )
    sym: bool | None = Field(default=None, description="Whether weights are symmetric.")
    load_after: bool = Field(default=True, description="Load the model when it is ready.")


class ConvertRequest(ModelRequest, ConversionFields):
    """Ask for the conversion of a registered model."""

    device: DeviceWords | None = Field(
        default=None, description="Device that it is loaded on behind it."
    )
    weight_format: WeightFormat | None = Field(default=None, description="Format of the weights.")
    trust_remote_code: bool | None = Field(
        default=None,
        description="Run Python code of the model's repository; null is the catalogue's policy.",
    )

    def options(self) -> ConversionOptions:
        """Return what the lifecycle is asked for."""
        return ConversionOptions(
            device=self.device,
            load_after=self.load_after,
            weight_format=self.weight_format,
            group_size=self.group_size,
            ratio=self.ratio,
            sym=self.sym,
            trust_remote_code=self.trust_remote_code,
        )


class RegisterRequest(NativeRequest):
    """Describe a new entry of the catalogue.

    `OWNER/REPO` is a repository of the hub; other sources are written as in the catalogue.
    """

    model_id: str = Field(
        min_length=1, max_length=200, description="Id: letters, digits, '.', '_' and '-'."
    )
    source_model: Annotated[str, StringConstraints(strip_whitespace=True)] = Field(
        min_length=1, max_length=240, pattern=_ONE_LINE, description="Where the model comes from."
    )
    name: Annotated[str, StringConstraints(strip_whitespace=True)] | None = Field(
        default=None,
        min_length=1,
        max_length=160,
        pattern=_ONE_LINE,
        description="Name for people.",
    )
    backend: str = Field(
        default="openvino-genai", min_length=1, max_length=80, description="What serves it."
    )
    weight_format: WeightFormat | None = Field(
        default=None, description="Format of the weights; null leaves it to the converter."
    )
    recommended_device: DeviceWords | None = Field(
        default=None, description="Device expression; null is the server's default device."
    )
    max_context_len: int | None = Field(
        default=None,
        ge=_FEWEST_TOKENS,
        le=_MOST_TOKENS,
        description="Context in tokens; null is the model's own.",
    )
    max_output_tokens: int | None = Field(
        default=None,
        ge=0,
        le=_MOST_OUTPUT,
        description="Default and cap of answers; null is what the context leaves.",
    )
    description: str | None = Field(
        default=None, max_length=2000, pattern=_LINES, description="For people."
    )
    trust_remote_code: bool = Field(
        default=False, description="Run Python code of the model's repository when converting."
    )

    @model_validator(mode="after")
    def _output_fits(self) -> RegisterRequest:
        output, context = self.max_output_tokens, self.max_context_len
        if self.backend in _WITHOUT_OUTPUT:
            if output:
                raise ValueError(
                    "models of this backend write no text: max_output_tokens must be 0"
                )
        elif output == 0:
            raise ValueError("max_output_tokens must be at least 1; null is no limit")
        elif output is not None and context is not None and output >= context:
            raise ValueError("max_output_tokens must be smaller than max_context_len")
        return self

    def registration(self) -> Registration:
        """Return what the lifecycle is asked for."""
        return Registration(
            id=self.model_id,
            source_model=address_of(self.source_model),
            name=self.name or "",
            backend=self.backend,
            weight_format=self.weight_format,
            recommended_device=self.recommended_device,
            max_context_len=self.max_context_len,
            max_output_tokens=self.max_output_tokens or None,
            description=self.description or "",
            trust_remote_code=self.trust_remote_code,
        )


class DownloadRequest(RegisterRequest, ConversionFields):
    """Ask for a new entry, its files, and perhaps a load behind it."""

    def options(self) -> ConversionOptions:
        """Return what the lifecycle is asked for once the entry is there."""
        return ConversionOptions(
            load_after=self.load_after,
            group_size=self.group_size,
            ratio=self.ratio,
            sym=self.sym,
        )


class CancelRequest(ModelRequest):
    """Name exactly one operation."""

    operation_id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$",
        description="The `progress.operation_id` of the model's status.",
    )


def address_of(source_model: str) -> str:
    """Write a bare repository name as the address that the catalogue keeps."""
    return f"hf:{source_model}" if _HUB_NAME.fullmatch(source_model) else source_model
