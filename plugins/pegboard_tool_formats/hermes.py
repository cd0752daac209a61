"""Hermes, Qwen 2.5, Qwen 3 and many others: a JSON object between tags.

    <tool_call>
    {"name": "lookup", "arguments": {"word": "peg"}}
    </tool_call>

Several calls are several blocks. Argument text is JSON, so a closing tag inside a string is
no closing tag. `parameters` is read like `arguments`; a missing closing tag is tolerated.
After a broken call the text up to the closing tag is dropped with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pegboard_contracts.call_grammars import CallSyntax, call_instructions, guaranteed_calls
from pegboard_contracts.calls import CallReader, Outcome
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.formats import CallIds, Reader, ToolFormat
from pegboard_contracts.generation import Constraint
from pegboard_contracts.scanning import Markers, Wait, discard

_OPENING = "<tool_call>"
_CLOSING = "</tool_call>"
_SYNTAX = CallSyntax(
    begin=_OPENING + '\n{"name": "{name}", "arguments": ',
    end="}\n" + _CLOSING,
    between="\n",
    trigger=_OPENING,
)


class Hermes(ToolFormat):
    """Read and guarantee calls in `<tool_call>` blocks of JSON."""

    summary = "Calls as JSON in <tool_call> tags (Hermes, Qwen 2.5 and 3)"
    kept_tokens = (_OPENING, _CLOSING)
    opening_markers = (_OPENING,)

    def matches_template(self, template: str) -> bool:
        """Tell a template that shows the tags and no other family's inner tags."""
        foreign = ("<function=", "<arg_key>")
        return _OPENING in template and not any(mark in template for mark in foreign)

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
    _openings = Markers(_OPENING)
    _either = Markers(_OPENING, _CLOSING)

    def program(self) -> Wait[None]:
        marker = yield from self.until(self._openings, self.say)
        while marker:
            marker = yield from self._block()
            if marker != _OPENING:
                marker = yield from self.until(self._openings, self.say)

    def _block(self) -> Wait[str]:
        self.hold(_OPENING)
        yield from self.blank()
        outcome = yield from self.json_series(marked=True, closing=_CLOSING)
        if outcome is Outcome.BROKEN:
            return (yield from self.until(self._either, discard))
        return ""


plugin = Hermes
