"""One of several given texts.

Input: `["positive", "negative"]`. Output: `negative`.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeGuard

from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Constraint
from pegboard_contracts.grammar import GrammarBuilder, literal
from pegboard_contracts.grammar.merging import is_list
from pegboard_contracts.structured_outputs import CompiledOutput, StructuredOutput

_MAX_CHOICES = 1024
_MAX_CHARACTERS = 64 * 1024


class Choice(StructuredOutput):
    """Allow exactly the given texts."""

    summary: ClassVar[str] = "one of several texts"

    def compile(self, value: Any) -> CompiledOutput:  # noqa: ANN401 - client data
        """List the texts as alternatives; raises `ApiError` 400 for anything but texts."""
        if not _is_choices(value):
            message = f"A choice is a list of 1 to {_MAX_CHOICES} texts that are not empty."
            raise ApiError(400, message, code="invalid_choice")
        if sum(map(len, value)) > _MAX_CHARACTERS:
            message = f"The texts of a choice have more than {_MAX_CHARACTERS} characters."
            raise ApiError(400, message, code="invalid_choice")
        grammar = GrammarBuilder().text(" | ".join(literal(text) for text in value))
        return CompiledOutput(constraint=Constraint(kind="ebnf", value=grammar))


def _is_choices(value: Any) -> TypeGuard[list[str]]:  # noqa: ANN401 - client data
    if not is_list(value) or not 0 < len(value) <= _MAX_CHOICES:
        return False
    return all(isinstance(text, str) and text for text in value)


plugin = Choice
