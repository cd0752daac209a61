"""Text that a regular expression matches as a whole.

Input: `(yes|no)( [a-z]+){0,3}`, in the syntax of JSON schema patterns.
Output: `yes of course`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Constraint
from pegboard_contracts.grammar import GrammarBuilder, PatternError, pattern_expression
from pegboard_contracts.structured_outputs import CompiledOutput, StructuredOutput


class Regex(StructuredOutput):
    """Translate a regular expression into a grammar."""

    summary: ClassVar[str] = "text that a regular expression matches"

    def compile(self, value: Any) -> CompiledOutput:  # noqa: ANN401 - client data
        """Translate the expression; raises `ApiError` 400 that says what it cannot hold."""
        if not isinstance(value, str) or not value:
            raise ApiError(400, "A regex is a text that is not empty.", code="invalid_regex")
        try:
            expression = pattern_expression(value, json=False, search=False)
        except PatternError as error:
            message = f"The regex cannot be used: {error}."
            raise ApiError(400, message, code="invalid_regex") from None
        grammar = GrammarBuilder().text(expression)
        return CompiledOutput(constraint=Constraint(kind="ebnf", value=grammar))


plugin = Regex
