"""Calls that a model breaks: they go on from their last valid character, under a grammar.

Source: decision 34.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.errors import ApiError
from pegboard_contracts.events import (
    FormatEvent,
    ToolArgumentsDelta,
    ToolCallDone,
    ToolCallStarted,
)
from pegboard_contracts.formats import CallIds, Reader, ToolFormat, new_call_id
from pegboard_contracts.generation import Constraint
from pegboard_contracts.grammar.examples import GrammarReader
from pegboard_contracts.grammar.remainder import remainder

MOST_RETRIES = 2
_LONGEST_CALL = 8192
_LONGEST_WORD = 8
_LEAD = 3

MakeReader = Callable[[CallIds], Reader]


class Mend(msgspec.Struct, frozen=True):
    """Say how a broken call goes on: bound by what, behind how much of the last piece."""

    constraint: Constraint
    kept: int


class MendingReader:
    """Read calls, and stop where one breaks, so that its rest can be written anew.

    With `broken`, the caller either goes on behind a `mend`, or takes the events of
    `give_up` and reads on.
    """

    def __init__(self, make: MakeReader, *, retries: int = MOST_RETRIES) -> None:
        """Read with what `make` makes; it is made again for every mend."""
        self.broken = False
        self._make = make
        self._retries = retries
        self._ids: list[str] = []
        self._reader = make(self._numbered())
        self._fed: list[str] = []
        self._call: ToolCallStarted | None = None
        self._arguments: list[str] = []
        self._withheld: list[FormatEvent] = []
        self._told_before = 0

    @property
    def reader(self) -> Reader:
        """Return the reader that reads now."""
        return self._reader

    @property
    def last_piece(self) -> str:
        """Return what was fed last."""
        return self._fed[-1] if self._fed else ""

    @property
    def inside(self) -> bool:
        """Tell whether a call is open."""
        return self._call is not None and self._retries > 0

    def feed(self, delta: str) -> list[FormatEvent]:
        """Take the next piece of text; see `Reader`. Returns nothing from a break on."""
        self._fed.append(delta)
        events = self._not_told_before(self._reader.feed(delta))
        for index, event in enumerate(events):
            if isinstance(event, ToolCallDone) and not event.complete and self._retries > 0:
                self.broken = True
                self._withheld = events[index:]
                return events[:index]
            self._note(event)
        return events

    def finish(self) -> list[FormatEvent]:
        """Return what was held back; see `Reader`."""
        return self._not_told_before(self._reader.finish())

    def _not_told_before(self, events: list[FormatEvent]) -> list[FormatEvent]:
        if not self._told_before:
            return events
        left: list[FormatEvent] = []
        for event in events:
            if isinstance(event, ToolArgumentsDelta):
                text = event.text[self._told_before :]
                self._told_before -= len(event.text) - len(text)
                if text:
                    left.append(ToolArgumentsDelta(event.index, text))
            else:
                left.append(event)
        return left

    def give_up(self) -> list[FormatEvent]:
        """Return what was withheld at the break."""
        self.broken = False
        events, self._withheld = self._withheld, []
        for event in events:
            self._note(event)
        return events

    def mend(self, tool_format: ToolFormat, tools: Sequence[Tool], least: int) -> Mend | None:
        """Stand behind the last valid character and return how the call goes on.

        `least` characters of the last piece cannot be taken back. `None`, and nothing is
        changed, when the call cannot be gone on with.
        """
        call, last = self._call, self.last_piece
        before = "".join(self._fed[:-1])
        kept = self._valid(before, last) if self.broken else len(last)
        tool = next((tool for tool in tools if call is not None and tool.name == call.name), None)
        if tool is None or kept < least or len(before) > _LONGEST_CALL:
            return None
        for shorter in range(kept, max(least, kept - _LONGEST_WORD) - 1, -1):
            if (grammar := self._rest(tool_format, tool, before + last[:shorter])) is not None:
                self._stand_behind(before, last[:shorter])
                return Mend(Constraint(kind="ebnf", value=grammar), shorter)
        return None

    def _rest(self, tool_format: ToolFormat, tool: Tool, text: str) -> str | None:
        """Return the grammar of what may follow `text`, when that agrees with what was sent."""
        sent = "".join(self._arguments)
        probe, events = self._make(self._numbered()), list[FormatEvent]()
        begin = len(text)
        for index, character in enumerate(text):
            for event in probe.feed(character):
                events.append(event)
                if isinstance(event, ToolCallStarted):
                    begin = len(text)
                elif isinstance(event, ToolArgumentsDelta):
                    begin = min(begin, index)
        told, written = _last_arguments(events), text[begin:]
        if not sent.startswith(told):
            return None
        # Arguments that are not written as JSON have to be gone on with as they stand.
        arguments = written if written.startswith(told) else ""
        return _rest_of_call(tool_format, tool, text, arguments)

    def _stand_behind(self, before: str, last: str) -> None:
        self._reader = self._make(self._numbered())
        told = _last_arguments(self._reader.feed(before + last))
        # A number is told when it ends, and it had ended when the call broke.
        self._told_before = len("".join(self._arguments)) - len(told)
        self._fed = [before, last]
        self._retries -= 1
        self.broken, self._withheld = False, []

    def _valid(self, before: str, last: str) -> int:
        probe = self._make(new_call_id)
        probe.feed(before)
        for index, character in enumerate(last):
            if any(_is_break(event) for event in probe.feed(character)):
                return index
        return len(last)

    def _note(self, event: FormatEvent) -> None:
        if isinstance(event, ToolCallStarted):
            self._call, self._arguments = event, []
        elif isinstance(event, ToolArgumentsDelta):
            self._arguments.append(event.text)
        elif isinstance(event, ToolCallDone):
            self._call = None

    def _numbered(self) -> CallIds:
        """Make the ids of a reader: those that were given before, then new ones."""
        given = 0

        def next_id() -> str:
            nonlocal given
            given += 1
            if given > len(self._ids):
                self._ids.append(new_call_id())
            return self._ids[given - 1]

        return next_id


def _is_break(event: FormatEvent) -> bool:
    return isinstance(event, ToolCallDone) and not event.complete


def _last_arguments(events: Sequence[FormatEvent]) -> str:
    arguments: list[str] = []
    for event in events:
        if isinstance(event, ToolCallStarted):
            arguments = []
        elif isinstance(event, ToolArgumentsDelta):
            arguments.append(event.text)
    return "".join(arguments)


def _rest_of_call(tool_format: ToolFormat, tool: Tool, text: str, arguments: str) -> str | None:
    """Return the grammar of a call's rest: as its schema wants it, else as any object."""
    loose = msgspec.structs.replace(
        tool, strict=False, parameters={"type": "object", "additionalProperties": True}
    )
    for wanted in (msgspec.structs.replace(tool, strict=False), loose):
        choice = ToolChoice(mode="required", names=(tool.name,))
        try:
            constraint = tool_format.constraint((wanted,), choice, parallel=False)
        except ApiError:
            continue
        if constraint is None or constraint.kind != "ebnf":
            continue
        grammar = constraint.value
        example = GrammarReader(grammar).shortest()
        opening = text.rfind(example[:_LEAD])
        rest = remainder(grammar, text[opening:]) if opening >= 0 else None
        if rest is None and arguments:
            rest = remainder(grammar, _opening_of(tool_format, wanted, example) + _tight(arguments))
        if rest is not None:
            return rest
    return None


def _opening_of(tool_format: ToolFormat, tool: Tool, example: str) -> str:
    """Return the text of a call before its arguments, as the grammar spells it."""
    reader = tool_format.reader((tool,), new_call_id)
    started = False
    for index, character in enumerate(example):
        if started and character == "{":
            return example[:index]
        started = started or any(
            isinstance(event, ToolCallStarted) for event in reader.feed(character)
        )
        if started and character == "{":
            return example[:index]
    return example


def _tight(text: str) -> str:
    """Return JSON text without blanks between its parts."""
    kept: list[str] = []
    quoted = escaped = False
    for character in text:
        if quoted or not character.isspace():
            kept.append(character)
        if character == '"' and not escaped:
            quoted = not quoted
        escaped = quoted and character == "\\" and not escaped
    return "".join(kept)
