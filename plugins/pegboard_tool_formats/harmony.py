"""gpt-oss: messages with a channel, and a recipient when they are calls.

    <|start|>assistant<|channel|>commentary to=functions.lookup <|constrain|>json<|message|>
    {"word": "peg"}<|call|>

(one line in truth). A message is a call when its header names a declared function as
recipient, before or after the channel, with or without the constraint, in any channel.
Other messages are text here; `harmony_channels` takes their markup away. After a broken call
the text up to the end of its message is dropped with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pegboard_contracts.call_grammars import CallSyntax, call_instructions, guaranteed_calls
from pegboard_contracts.calls import CallReader, Outcome
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.formats import CallIds, Reader, ToolFormat
from pegboard_contracts.generation import Constraint
from pegboard_contracts.scanning import Markers, Wait, discard

_START = "<|start|>"
_CHANNEL = "<|channel|>"
_CONSTRAIN = "<|constrain|>"
_MESSAGE = "<|message|>"
_ENDS = ("<|call|>", "<|end|>", "<|return|>")
_RECIPIENT = re.compile(r"\bto=(\S+)")
_SYNTAX = CallSyntax(
    names=r'[^\s<>"\\\x00-\x1f]+',
    begin=_CHANNEL + "commentary to=functions.{name} " + _CONSTRAIN + "json" + _MESSAGE,
    end=_ENDS[0],
    between=_START + "assistant",
    trigger=_CHANNEL + "commentary to=",
)


class Harmony(ToolFormat):
    """Read and guarantee calls as gpt-oss writes them."""

    summary = "Calls as messages to=functions.name (gpt-oss)"
    kept_tokens = (_START, _CHANNEL, _CONSTRAIN, _MESSAGE, *_ENDS)
    opening_markers = (_CHANNEL, _START)

    def matches_template(self, template: str) -> bool:
        """Tell a template that writes channels and messages."""
        return _CHANNEL in template and _MESSAGE in template

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
    _headers = Markers(_START, _CHANNEL)
    _boundaries = Markers(_START, _CHANNEL, *_ENDS)

    def program(self) -> Wait[None]:
        marker = yield from self.until(self._headers, self.say)
        while marker:
            self.hold(marker)
            header = yield from self.header(_MESSAGE, (_CHANNEL, _CONSTRAIN), 256)
            recipient = _RECIPIENT.search(header) if header else None
            marker = (yield from self._call(recipient[1])) if recipient else ""
            self.release()
            if marker not in (_START, _CHANNEL):
                marker = yield from self.until(self._headers, self.say)

    def _call(self, recipient: str) -> Wait[str]:
        """Read the body of a call; returns the marker that a broken one ran into."""
        tool = self.tool(recipient)
        if tool is None:
            yield from self.json_is_text()
            return ""
        self.start(tool)
        yield from self.blank()
        if (yield from self.next_is(*_ENDS)):
            self.arguments("{}")
            outcome = self.done()
        else:
            outcome = yield from self.json_arguments(tool, started=True)
        if outcome is Outcome.BROKEN:
            return (yield from self.until(self._boundaries, discard))
        self.hold()
        yield from self.blank()
        for end in _ENDS:
            if (yield from self.accept(end)):
                self.drop()
                break
        return ""


plugin = Harmony
