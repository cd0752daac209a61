"""Llama 3.1 to 3.3: a JSON object instead of an answer, or after the python tag.

    {"name": "lookup", "parameters": {"word": "peg"}}
    <|python_tag|>{"name": "lookup", "parameters": {"word": "peg"}}

Several calls follow each other, with `;`, `,` or a line break between them, or stand in a
list. Without the tag only the very beginning of an answer can be a call, and only when the
object has a call's members and the name is declared: a JSON answer stays an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from pegboard_contracts.call_grammars import (
    CallSyntax,
    call_instructions,
    free_text,
    guaranteed_calls,
)
from pegboard_contracts.calls import CallReader
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.formats import CallIds, Reader, ToolFormat
from pegboard_contracts.generation import Constraint
from pegboard_contracts.grammar import GrammarBuilder
from pegboard_contracts.scanning import Markers, Wait

_TAG = "<|python_tag|>"


def _free_answer(builder: GrammarBuilder, call: str, parallel: bool) -> str:
    """Allow an answer that cannot be taken for a call, or calls alone."""
    words = r'[ \t\r\n]* ([^{[<\r\n\t ] | "<" [^|])' + f" {free_text(_TAG)}"
    calls = f'{call} ("; " {call})*' if parallel else call
    return f"({calls} | ({builder.rule('words', words)})?)"


_SYNTAX = CallSyntax(
    begin='{"name": "{name}", "parameters": ', end="}", between="; ", free_answer=_free_answer
)


class Llama3Json(ToolFormat):
    """Read and guarantee calls as Llama 3 models write them."""

    summary = "Calls as bare JSON or after <|python_tag|> (Llama 3.1 to 3.3)"
    kept_tokens = (_TAG,)
    opening_markers = (_TAG,)

    def matches_template(self, template: str) -> bool:
        """Tell a Llama 3 template that asks for JSON with `parameters`."""
        return "<|start_header_id|>" in template and '"parameters"' in template

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
    _tags = Markers(_TAG)

    def program(self) -> Wait[None]:
        self.hold()
        yield from self.blank()
        if (yield from self.next_is("{", "[")):
            yield from self.json_series(marked=False)
        else:
            self.release()
        while (yield from self.until(self._tags, self.say)):
            self.hold(_TAG)
            yield from self.blank()
            yield from self.json_series(marked=True)


plugin = Llama3Json
