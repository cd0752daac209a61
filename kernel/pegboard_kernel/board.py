"""The board: what the active plugins contributed, as plain read-only data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pegboard_contracts.backend import Backend
from pegboard_contracts.converters import Converter
from pegboard_contracts.formats import ReasoningFormat, ToolFormat
from pegboard_contracts.sources import ModelSource
from pegboard_contracts.structured_outputs import StructuredOutput


@dataclass(frozen=True, kw_only=True)
class Board:
    """Hold the contributions of one server's plugins, in plugin order.

    Formats, structured outputs, converters and backends are keyed by plugin name, sources by
    scheme (`""` is a plain path). `sections` holds each active plugin's validated settings as
    plain data, so that a child process can configure the same plugin again.
    """

    backends: Mapping[str, Backend] = field(default_factory=dict[str, Backend])
    converters: Mapping[str, Converter] = field(default_factory=dict[str, Converter])
    tool_formats: Mapping[str, ToolFormat] = field(default_factory=dict[str, ToolFormat])
    reasoning_formats: Mapping[str, ReasoningFormat] = field(
        default_factory=dict[str, ReasoningFormat]
    )
    structured_outputs: Mapping[str, StructuredOutput] = field(
        default_factory=dict[str, StructuredOutput]
    )
    model_sources: Mapping[str, ModelSource] = field(default_factory=dict[str, ModelSource])
    sections: Mapping[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
