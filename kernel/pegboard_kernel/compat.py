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
    "inferbridge": Preset(
        summary="422 for every body that breaks its schema, on the Responses family too",
        values={"schema_error_status.responses": 422},
    ),
    "openai": Preset(
        summary="400 for every client mistake on OpenAI-style routes",
        values={"schema_error_status.openai": 400},
    ),
}
