"""Text of a grammar that the client wrote in EBNF.

Input: `root ::= "a" [0-9]+ | sentence` and further rules, a rule a line.
Output: `a42`. Source: the dialect of the engine's grammar compiler.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Constraint
from pegboard_contracts.grammar.examples import GrammarReader
from pegboard_contracts.structured_outputs import CompiledOutput, StructuredOutput

_MAX_CHARACTERS = 64 * 1024
_MOST_JUDGED_RULES = 256
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]')


class Grammar(StructuredOutput):
    """Pass a grammar on; whether it compiles is found out before the engine sees it."""

    summary: ClassVar[str] = "text of an EBNF grammar"

    def compile(self, value: Any) -> CompiledOutput:  # noqa: ANN401 - client data
        """Take the grammar as it is; raises `ApiError` 400 without a rule named root."""
        if not isinstance(value, str) or len(value) > _MAX_CHARACTERS:
            message = f"A grammar is a text of at most {_MAX_CHARACTERS} characters."
            raise ApiError(400, message, code="invalid_grammar")
        if not any(line.partition("::=")[0].strip() == "root" for line in value.splitlines()):
            message = "The grammar has no rule 'root ::= ...', where every answer begins."
            raise ApiError(400, message, code="invalid_grammar")
        if _never_ends(value):
            message = "The rules of the grammar call each other without end: no text is complete."
            raise ApiError(400, message, code="invalid_grammar")
        return CompiledOutput(constraint=Constraint(kind="ebnf", value=value))


def _never_ends(grammar: str) -> bool:
    """Tell a grammar without any complete text, which the engine would not enforce at all.

    Only one that can be judged: a rule a line, without comments, of no great size.
    """
    lines = [line for line in grammar.splitlines() if line.strip()]
    if len(lines) > _MOST_JUDGED_RULES or "#" in grammar or not all("::=" in one for one in lines):
        return False
    try:
        reader = GrammarReader(grammar)
    except (ValueError, RecursionError):
        return False
    defined = set(reader.rules)
    named = {name for line in lines for name in _NAME.findall(_QUOTED.sub(" ", line))}
    return named <= defined and not reader.ends


plugin = Grammar
