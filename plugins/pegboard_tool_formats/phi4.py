"""Phi-4-mini: a JSON list between tags, or after the word `functools`.

    <|tool_call|>[{"name": "lookup", "arguments": {"word": "peg"}}]<|/tool_call|>
    functools[{"name": "lookup", "arguments": {"word": "peg"}}]

The list may hold several calls. `functools` that no list of objects follows is text.
"""

from __future__ import annotations

from collections.abc import Sequence

from pegboard_contracts.call_grammars import CallSyntax, call_instructions, guaranteed_calls
from pegboard_contracts.calls import CallReader, Outcome
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.formats import CallIds, Reader, ToolFormat
from pegboard_contracts.generation import Constraint
from pegboard_contracts.scanning import Markers, Wait, discard

_OPENING = "<|tool_call|>"
_CLOSING = "<|/tool_call|>"
_WORD = "functools"
_SYNTAX = CallSyntax(
    begin='{"name": "{name}", "arguments": ',
    end="}",
    between=", ",
    before=_OPENING + "[",
    after="]" + _CLOSING,
    trigger=_OPENING,
)


class Phi4(ToolFormat):
    """Read and guarantee calls as Phi-4-mini writes them."""

    summary = "Calls as a JSON list in <|tool_call|> or after functools (Phi-4-mini)"
    kept_tokens = (_OPENING, _CLOSING)
    opening_markers = (_OPENING, _WORD + "[{")

    def matches_template(self, template: str) -> bool:
        """Tell a template that writes the tags, or lists tools between theirs."""
        return _OPENING in template or "<|tool|>" in template

    def reader(self, tools: Sequence[Tool], new_id: CallIds) -> Reader:
        """Make the reader of one answer."""
        return _Reader(tools, new_id)

    def instructions(self, tools: Sequence[Tool], choice: ToolChoice) -> str | None:
        """Describe the tools that may be called and how; nothing when none may."""
        return call_instructions(_SYNTAX, tools, choice)

    def constraint(
        self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool
    ) -> Constraint | None:
        """Return the grammar of calls in this syntax."""
        return guaranteed_calls(_SYNTAX, tools, choice, parallel=parallel)


class _Reader(CallReader):
    _openings = Markers(_OPENING, _WORD + "[")
    _closings = Markers(_CLOSING)

    def program(self) -> Wait[None]:
        while marker := (yield from self.until(self._openings, self.say)):
            self.hold(marker)
            yield from self.blank()
            if marker == _OPENING:
                outcome = yield from self.json_series(marked=True, closing=_CLOSING)
                if outcome is Outcome.BROKEN:
                    yield from self.until(self._closings, discard)
            elif (yield from self.json_series(marked=True)) is Outcome.CALLED:
                yield from self.accept("]")


plugin = Phi4
