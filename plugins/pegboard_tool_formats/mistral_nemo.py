"""Mistral Nemo and Mistral 7B v0.3: a JSON list after a marker.

    [TOOL_CALLS] [{"name": "lookup", "arguments": {"word": "peg"}}]

The list may hold several calls; an `id` in it is not used. Call ids have nine letters and
digits, all that the templates accept.
"""

from __future__ import annotations

from collections.abc import Sequence

from pegboard_contracts.call_grammars import CallSyntax, call_instructions, guaranteed_calls
from pegboard_contracts.calls import CallReader
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.formats import CallIds, Reader, ToolFormat, short_call_id
from pegboard_contracts.generation import Constraint
from pegboard_contracts.scanning import Markers, Wait

_OPENING = "[TOOL_CALLS]"
_SYNTAX = CallSyntax(
    begin='{"name": "{name}", "arguments": ',
    end="}",
    between=", ",
    before=_OPENING + " [",
    after="]",
    trigger=_OPENING,
)


class MistralNemo(ToolFormat):
    """Read and guarantee calls as Mistral models of 2024 write them."""

    summary = "Calls as [TOOL_CALLS] and a JSON list (Mistral Nemo, Mistral 7B v0.3)"
    kept_tokens = (_OPENING,)
    opening_markers = (_OPENING + "[{", _OPENING + " [{")

    def matches_template(self, template: str) -> bool:
        """Tell a template that writes the marker, without the later one for arguments."""
        return _OPENING in template and "[ARGS]" not in template

    def reader(self, tools: Sequence[Tool], new_id: CallIds) -> Reader:
        """Make the reader of one answer."""
        return _Reader(tools, lambda: short_call_id(new_id()))

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

    def program(self) -> Wait[None]:
        while (yield from self.until(self._openings, self.say)):
            self.hold(_OPENING)
            yield from self.blank()
            yield from self.json_calls(marked=True)


plugin = MistralNemo
