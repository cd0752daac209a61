"""Any model: calls as JSON on lines of their own, and a prompt that asks for them.

    {"name": "lookup", "arguments": {"word": "peg"}}

The shim for templates that know no tools. A call begins at the beginning of a line; it may
stand in a list or in a code fence (without language, `json` or `tool_call`), and several may
follow each other. An object with members other than a call's, or a name that is not
declared, is an answer and stays text, as do all other code fences. Beside strict tools an
answer in words cannot have lines or fences that look like calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pegboard_contracts.call_grammars import (
    CallSyntax,
    call_instructions,
    free_text,
    guaranteed_calls,
)
from pegboard_contracts.calls import CallReader, Outcome
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.formats import CallIds, Reader, ToolFormat
from pegboard_contracts.generation import Constraint
from pegboard_contracts.grammar import GrammarBuilder
from pegboard_contracts.scanning import Markers, Wait

_FENCE = "```"
_LANGUAGE = re.compile(r"[A-Za-z0-9_+-]*")
_LANGUAGES = frozenset({"", "json", "tool_call", "tool_calls"})


_PLAIN_LINE = r"""[ \t]* ([^{[`\r\n\t ] | "[" [^{\r\n\t ] | "`" [^`\n] | "``" [^`\n]) [^\n]*"""
_WORD = "[a-zA-Z0-9_+-]*"
_OTHER_LANGUAGE = (
    f'(([a-ik-su-zA-Z] | "java" | "t" [a-np-z]) {_WORD} | "js" | "jsx" | "jsonc" | "toml")'
)


def _free_answer(builder: GrammarBuilder, call: str, parallel: bool) -> str:
    """Allow lines and fences that cannot be taken for calls, and lines that are calls."""
    fence = f'"{_FENCE}" {_OTHER_LANGUAGE} "\\n" {free_text(_FENCE)} "{_FENCE}" [^\\n]*'
    line = builder.rule("line", f"({_PLAIN_LINE})? | {builder.rule('fence', fence)}")
    last = f"({call} | {line})"
    return f'({last if parallel else line} "\\n")* {last}'


_SYNTAX = CallSyntax(
    begin='{"name": "{name}", "arguments": ', end="}", between="\n", free_answer=_free_answer
)


class GenericJson(ToolFormat):
    """Ask for calls as JSON lines, and read them."""

    summary = "Calls as JSON on lines of their own, for templates that know no tools"

    def matches_template(self, template: str) -> bool:
        """Match no template: this format is for those that know no tools."""
        del template
        return False

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
    _line_end = Markers("\n")
    _fence_end = Markers(_FENCE)

    def program(self) -> Wait[None]:
        while (yield from self.more()):
            self.hold()
            yield from self.blank()
            if (yield from self.accept(_FENCE)):
                yield from self._fenced()
            elif (yield from self.next_is("{", "[")):
                yield from self.json_series(marked=False)
            else:
                self.release()
            self.say((yield from self.until(self._line_end, self.say)))

    def _fenced(self) -> Wait[None]:
        language = yield from self.run(_LANGUAGE, 32)
        yield from self.blank()
        outcome = Outcome.TEXT
        if language in _LANGUAGES and (yield from self.next_is("{", "[")):
            outcome = yield from self.json_series(marked=False, closing=_FENCE)
        else:
            self.release()
        if outcome is Outcome.TEXT:
            self.say((yield from self.until(self._fence_end, self.say)))


plugin = GenericJson
