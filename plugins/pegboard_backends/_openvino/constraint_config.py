"""A constraint as GenAI's structured output config, and GenAI's complaints about one."""

from __future__ import annotations

import re
from typing import Any

from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.generation import Constraint

from pegboard_backends._openvino import library

_FIELDS = {
    "json_schema": "json_schema",
    "regex": "regex",
    "ebnf": "grammar",
    "structural_tag": "structural_tags_config",
}
_SOURCE_PLACE = re.compile(r"(?:\[[\d:]+\]\s*)?\S*\.(?:cc|cpp|h|hpp):\d+:?\s*")
_QUOTE = re.compile(r"(['\"`])(.*?)\1")
_LONGEST_QUOTE = 24
_LONGEST_REASON = 240


def structured_output_config(constraint: Constraint) -> Any:  # noqa: ANN401 - GenAI's
    """Build the config of a constraint; whether it compiles shows in a step."""
    fields = {_FIELDS[constraint.kind]: constraint.value}
    return library.genai().StructuredOutputConfig(**fields)


def bad_constraint(error: Exception) -> ApiError:
    """Make the 400 of a constraint that GenAI cannot compile, with its own reason.

    Places in GenAI's sources and long quotations of the grammar are left out.
    """
    reason = _SOURCE_PLACE.sub("", str(error).strip().split("\n\n")[0])
    reason = _QUOTE.sub(_short_quote, " ".join(reason.split()))[:_LONGEST_REASON].rstrip(".")
    message = f"The grammar does not compile: {reason or 'no reason is given'}. Correct it."
    return invalid_request(message, code="invalid_grammar")


def _short_quote(match: re.Match[str]) -> str:
    return match[0] if len(match[2]) <= _LONGEST_QUOTE else f"{match[1]}...{match[1]}"
