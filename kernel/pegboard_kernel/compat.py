"""Compatibility presets: named sets of setting values, as data in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Give values to settings by their dotted paths; flag, environment and file win over it."""

    summary: str
    values: Mapping[str, Any]


PRESETS = {
    "codex": Preset(
        summary="tools that are no functions are left out, reasoning comes as summaries",
        values={
            "plugins.responses.unsupported_tools": "ignore",
            "plugins.responses.reasoning_events": "summary",
        },
    ),
    "inferbridge": Preset(
        summary="422 for every body that breaks its schema, on the Responses family too",
        values={"schema_error_status.responses": 422},
    ),
    "openai": Preset(
        summary="400 for every client mistake on OpenAI-style routes",
        values={"schema_error_status.openai": 400},
    ),
    "openresponses": Preset(
        summary="responses as the strict Open Responses schema wants them",
        values={
            "plugins.responses.background_key_always": True,
            "plugins.responses.compact_short_histories": True,
            "plugins.responses.compaction_events": False,
            "plugins.responses.reasoning_events": "summary",
        },
    ),
}
