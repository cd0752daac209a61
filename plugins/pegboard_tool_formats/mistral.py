"""Mistral Small 3, Ministral, Magistral, Devstral: a name and its arguments after markers.

    [TOOL_CALLS]lookup[ARGS]{"word": "peg"}

Each call has its own `[TOOL_CALLS]`; a `[CALL_ID]` with an id may stand before `[ARGS]` and
is not used. The JSON list of the older models (`mistral_nemo`) is read too. Call ids have
nine letters and digits, all that the templates accept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pegboard_contracts.call_grammars import CallSyntax, call_instructions, guaranteed_calls
from pegboard_contracts.calls import CallReader
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.formats import CallIds, Reader, ToolFormat, short_call_id
from pegboard_contracts.generation import Constraint
from pegboard_contracts.scanning import Markers, Wait

_OPENING = "[TOOL_CALLS]"
_ARGUMENTS = "[ARGS]"
_CALL_ID = "[CALL_ID]"
_WORD = re.compile(r"[^\s\[{]*")
_SYNTAX = CallSyntax(
    begin=_OPENING + "{name}" + _ARGUMENTS,
    end="",
    between="",
    trigger=_OPENING,
    names=r'[^\s\[{"\\\x00-\x1f]+',
)


class Mistral(ToolFormat):
    """Read and guarantee calls as Mistral models of 2025 and later write them."""

    summary = "Calls as [TOOL_CALLS]name[ARGS]{...} (Mistral Small 3, Devstral)"
    kept_tokens = (_OPENING, _CALL_ID, _ARGUMENTS)
    opening_markers = (_OPENING,)

    def matches_template(self, template: str) -> bool:
        """Tell a template that writes both markers."""
        return _OPENING in template and _ARGUMENTS in template

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
            if (yield from self.next_is("{", "[{", "[ ", "[\n")):
                yield from self.json_calls(marked=True)
            else:
                yield from self._named_call()

    def _named_call(self) -> Wait[None]:
        name = yield from self.run(_WORD, 128)
        yield from self.blank()
        if (yield from self.accept(_CALL_ID)):
            yield from self.run(_WORD, 128)
        yield from self.accept(_ARGUMENTS)
        yield from self.blank()
        tool = self.tool(name)
        if tool is None or not (yield from self.next_is("{")):
            yield from self.json_is_text()
        else:
            yield from self.json_arguments(tool)


plugin = Mistral
