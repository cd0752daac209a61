"""Calls in double angles: the format of the tutorial, for models that do not exist.

    <<weather {"city": "Oslo"}>>

A name, a blank, the arguments as JSON. Several calls stand one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pegboard_contracts.call_grammars import CallSyntax, call_instructions, guaranteed_calls
from pegboard_contracts.calls import CallReader
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.formats import CallIds, Reader, ToolFormat
from pegboard_contracts.generation import Constraint
from pegboard_contracts.scanning import Markers, Wait

_SYNTAX = CallSyntax(begin="<<{name} ", end=">>", between="\n", trigger="<<")
_NAME = re.compile(r"[\w.-]*")


class AngleCalls(ToolFormat):
    """Read, ask for and guarantee calls in double angles."""

    summary = "Calls as <<name {...}>>"
    opening_markers = ("<<",)

    def matches_template(self, template: str) -> bool:
        """Tell a template that shows such a call."""
        return "<<" in template and ">>" in template and "tools" in template

    def reader(self, tools: Sequence[Tool], new_id: CallIds) -> Reader:
        """Make the reader of one answer."""
        return _Reader(tools, new_id)

    def instructions(self, tools: Sequence[Tool], choice: ToolChoice) -> str | None:
        """Describe the tools and the syntax to a model whose template knows neither."""
        return call_instructions(_SYNTAX, tools, choice)

    def constraint(
        self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool
    ) -> Constraint | None:
        """Return the grammar of calls in this syntax."""
        return guaranteed_calls(_SYNTAX, tools, choice, parallel=parallel)


class _Reader(CallReader):
    def program(self) -> Wait[None]:
        while (yield from self.until(Markers("<<"), self.say)):
            self.hold("<<")
            tool = self.tool((yield from self.run(_NAME, 128)))
            yield from self.blank()
            if tool is None or not (yield from self.next_is("{")):
                yield from self.json_is_text()
            else:
                yield from self.json_arguments(tool)
                yield from self.closing(">>")


plugin = AngleCalls
