"""Any JSON object: it starts with `{`, ends with `}`, and holds no runs of blanks.

Input: nothing. Output: `{"city": "Oslo", "tags": ["a", "b"]}`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pegboard_contracts.generation import Constraint
from pegboard_contracts.grammar import GrammarBuilder
from pegboard_contracts.structured_outputs import CompiledOutput, StructuredOutput


class JsonObject(StructuredOutput):
    """Allow every JSON object and nothing else."""

    summary: ClassVar[str] = "any JSON object"

    def compile(self, value: Any) -> CompiledOutput:  # noqa: ANN401 - takes no input
        """Return the grammar of JSON objects."""
        del value
        builder = GrammarBuilder()
        grammar = builder.text(builder.shared("json_object"))
        return CompiledOutput(constraint=Constraint(kind="ebnf", value=grammar))


plugin = JsonObject
