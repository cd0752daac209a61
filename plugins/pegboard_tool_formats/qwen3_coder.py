"""Qwen3-Coder, Qwen 3.5 and 3.6: parameters between tags, their text as it is.

    <tool_call>
    <function=lookup>
    <parameter=word>
    peg
    </parameter>
    </function>
    </tool_call>

The outer tags may be missing. Of a value exactly one line break right after `>` and one
right before the closing tag are markup; everything else is the value. Its type comes from
the tool's schema, as `pegboard_contracts.typed_text` says: strings stream, anything else is
held until its type is certain.

A closing tag inside a value is text: `</parameter>` closes only when another tag or the end
follows it, and a call quoted whole (`<function=` to `</function>`) is text. Damaged calls are
mended where their meaning is plain: a missing `>`, a missing `</parameter>` before the next
parameter's line or before the end of the call, a missing `</function>`. After a call that
cannot be mended the text up to `</tool_call>` is dropped with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from pegboard_contracts.call_grammars import CallSyntax, call_instructions, guaranteed_calls
from pegboard_contracts.calls import CallReader
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.formats import CallIds, Reader, ToolFormat
from pegboard_contracts.generation import Constraint
from pegboard_contracts.grammar import GrammarBuilder, literal
from pegboard_contracts.json_text import string_fragment
from pegboard_contracts.raw_grammars import raw_arguments
from pegboard_contracts.scanning import Markers, Wait, discard
from pegboard_contracts.typed_text import TypedText, argument_names, argument_types

_OPENING = "<tool_call>"
_CLOSING = "</tool_call>"
_FUNCTION = "<function="
_FUNCTION_END = "</function>"
_PARAMETER = "<parameter="
_PARAMETER_END = "</parameter>"
_MARKERS = (_PARAMETER_END, _PARAMETER, _FUNCTION_END, _FUNCTION, _CLOSING, _OPENING)
_FOLLOWERS = (_PARAMETER, "</function", _CLOSING, _OPENING, _FUNCTION)
_NAME = re.compile(r"[^<>\n]*")
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.-]*")


def _member(name: str, value: str) -> str:
    opening, closing = f"{_PARAMETER}{name}>\n", f"{_PARAMETER_END}\n"
    return f"{literal(opening)} {value} {literal(closing)}"


def _arguments(builder: GrammarBuilder, tool: Tool) -> tuple[str, list[str]]:
    return raw_arguments(builder, tool, _member, _MARKERS)


_SYNTAX = CallSyntax(
    begin=f"{_OPENING}\n{_FUNCTION}{{name}}>\n",
    end=f"{_FUNCTION_END}\n{_CLOSING}",
    between="\n",
    trigger=_OPENING,
    example=f"{_PARAMETER}argument_name>\nvalue\n{_PARAMETER_END}\n",
    arguments=_arguments,
    names=r'(?!\s)[^<>"\\\x00-\x1f]+(?<!\s)',
)


class _After(Enum):
    """Say what ended a value: its tag, the next parameter, the function, or the text."""

    VALUE = 1
    NEXT = 2
    FUNCTION = 3
    CUT = 4


class Qwen3Coder(ToolFormat):
    """Read and guarantee calls as Qwen3-Coder models write them."""

    summary = "Calls as <function=...> and <parameter=...> tags (Qwen3-Coder, 3.5, 3.6)"
    kept_tokens = (_OPENING, _CLOSING)
    opening_markers = (_FUNCTION, _OPENING + _FUNCTION, f"{_OPENING}\n{_FUNCTION}")

    def matches_template(self, template: str) -> bool:
        """Tell a template that writes both inner tags."""
        return _FUNCTION in template and _PARAMETER in template

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
    _openings = Markers(_OPENING, _FUNCTION)
    _function_end = Markers(_FUNCTION_END)
    _call_ends = Markers(_CLOSING, _OPENING)
    _inner = Markers(_PARAMETER, _PARAMETER_END, _FUNCTION, _FUNCTION_END)

    def program(self) -> Wait[None]:
        marker = yield from self.until(self._openings, self.say)
        while marker:
            self.hold(marker)
            if marker == _OPENING:
                yield from self.blank()
            if marker == _OPENING and not (yield from self.accept(_FUNCTION)):
                self.release()
                marker = ""
            else:
                marker = yield from self._function()
            if not marker:
                marker = yield from self.until(self._openings, self.say)

    def _function(self) -> Wait[str]:
        """Read a call after its opening; returns another call's opening when it ran into it."""
        tool = self.tool((yield from self.run(_NAME, 256)).strip())
        if tool is None:
            self.release(onward=True)
            yield from self.until(self._function_end, discard)
            self.route = None
            return ""
        yield from self.accept(">")
        self.start(tool)
        self.arguments("{")
        if not (yield from self._parameters(tool)):
            self.done(complete=False)
            found = yield from self.until(self._call_ends, discard)
            return found if found == _OPENING else ""
        self.arguments("}")
        self.done()
        yield from self.closing(_CLOSING)
        return ""

    def _parameters(self, tool: Tool) -> Wait[bool]:
        """Read parameters up to the end of the function; true when that was found."""
        given: set[str] = set()
        name = yield from self._parameter()
        while name is not None:
            comma = ", " if given else ""
            self.arguments(f'{comma}"{string_fragment(name)}": ')
            given.add(name)
            value = TypedText(argument_types(tool, name), self.arguments)
            after, name = yield from self._value(value, argument_names(tool), given)
            if after is _After.CUT:
                return False
            value.finish()
            if after is _After.FUNCTION:
                return True
            if after is _After.VALUE:
                name = yield from self._parameter()
        mended = yield from self.next_is(_CLOSING)
        return mended or (yield from self.accept(_FUNCTION_END))

    def _parameter(self) -> Wait[str | None]:
        yield from self.blank()
        if not (yield from self.accept(_PARAMETER)):
            return None
        name = yield from self.run(_NAME, 256)
        yield from self.accept(">")
        yield from self.accept("\n")
        return name

    def _value(
        self, value: TypedText, declared: frozenset[str], given: set[str]
    ) -> Wait[tuple[_After, str | None]]:
        """Read a value up to what ends it, and the name of a parameter that ends it."""
        quoted = 0
        while marker := (yield from self.until(self._inner, value.feed)):
            text = marker
            if marker == _FUNCTION or quoted:
                quoted += (marker == _FUNCTION) - (marker == _FUNCTION_END)
            elif marker == _PARAMETER_END:
                text += yield from self.blank()
                if (yield from self.next_is(*_FOLLOWERS)) or not (yield from self.more()):
                    return _After.VALUE, None
            elif marker == _PARAMETER:
                name = yield from self.run(_NAME, 256)
                text += name
                fits = name in declared if declared else _PLAIN_NAME.fullmatch(name)
                begins = value.at_line_start and fits and name not in given
                if begins and (yield from self.accept(">")):
                    yield from self.accept("\n")
                    return _After.NEXT, name
            else:
                text += yield from self.blank()
                if (yield from self.accept(_CLOSING)):
                    text += _CLOSING + (yield from self.blank())
                if (yield from self.next_is(_OPENING)) or not (yield from self.more()):
                    return _After.FUNCTION, None
            value.feed(text)
        return _After.CUT, None


plugin = Qwen3Coder
