"""The toolbox of tool formats: start, stream and end calls, and read those written as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import Enum

from pegboard_contracts.conversation import Tool
from pegboard_contracts.events import (
    FormatEvent,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallDone,
    ToolCallStarted,
)
from pegboard_contracts.formats import CallIds
from pegboard_contracts.json_text import JsonScanner, JsonState
from pegboard_contracts.scanning import SequentialReader, Wait, discard

_ARGUMENT_KEYS = ("arguments", "parameters")
_KNOWN_KEYS = ("arguments", "parameters", "type", "id")
_BETWEEN = re.compile(r"[ \t\r\n;,]*")
_STRAY = re.compile(r"[ \t\r\n}\]]*")


class Outcome(Enum):
    """Say what became of an attempt to read a call."""

    CALLED = "called"
    """A call was made and its arguments are complete."""

    TEXT = "text"
    """It was no call; everything consumed has become text."""

    BROKEN = "broken"
    """A call was started and closed incomplete."""


class CallReader(SequentialReader):
    """Be the base of tool format readers.

    Blank text that only separates calls from each other, or from the start or the end of
    the answer, is dropped; all other text outside of calls is kept as it is. Markup is
    held with `hold` until the call's name is certain: then `start` drops it, or `release`
    makes it text.
    """

    def __init__(self, tools: Sequence[Tool], new_id: CallIds) -> None:
        """Read calls of these tools; an empty list makes everything text."""
        super().__init__()
        self._tools = {f"{tool.namespace}.{tool.name}": tool for tool in tools if tool.namespace}
        self._tools |= {tool.name: tool for tool in tools}
        self._new_id = new_id
        self._index = -1
        self._held: list[str] = []
        self._gap: list[str] | None = []

    def finish(self) -> list[FormatEvent]:
        """Return what was held back."""
        events = super().finish()
        if self._gap and self._index < 0:
            events.append(TextDelta("".join(self._gap)))
        return events

    def tool(self, name: str) -> Tool | None:
        """Find the tool a model named: exactly, else without one namespace before a dot."""
        return self._tools.get(name) or self._tools.get(name.partition(".")[2])

    def say(self, text: str) -> None:
        """Emit visible text, blank text only when other text follows."""
        if not text:
            return
        if self._gap is not None:
            self._gap.append(text)
            if text.isspace():
                return
            text = "".join(self._gap)
            self._gap = None
        super().say(text)

    def hold(self, opening: str = "") -> None:
        """Keep `opening` and whatever is consumed from here on, undecided."""
        self._held = [opening]
        self.route = self._held.append

    def release(self, *, onward: bool = False) -> None:
        """Make what was held text; with `onward` also what is consumed from here on."""
        held, self._held = self._held, []
        self.route = self.say if onward else None
        self.say("".join(held))

    def drop(self) -> None:
        """Forget what was held: it was markup."""
        self._held = []
        self.route = None

    def start(self, tool: Tool) -> None:
        """Open the next call and drop the markup before it."""
        self.drop()
        self._gap = []
        self._index += 1
        self.emit(ToolCallStarted(self._index, self._new_id(), tool.name))

    def arguments(self, text: str) -> None:
        """Emit a fragment of the open call's arguments."""
        self.emit(ToolArgumentsDelta(self._index, text))

    def done(self, *, complete: bool = True) -> Outcome:
        """Close the open call."""
        self.emit(ToolCallDone(self._index, complete))
        return Outcome.CALLED if complete else Outcome.BROKEN

    def no_call(self) -> Outcome:
        """Release what was held."""
        self.release()
        return Outcome.TEXT

    def closing(self, marker: str) -> Wait[bool]:
        """Drop the marker that ends a call, with stray brackets before it.

        Without the marker the brackets are text; returns whether it was there.
        """
        self.hold()
        yield from self.run(_STRAY)
        closed = yield from self.accept(marker)
        if closed:
            self.drop()
        else:
            self.release()
        return closed

    def json_calls(self, *, marked: bool) -> Wait[Outcome]:
        """Read a call, or a list of calls, written as JSON objects that name and argue.

        Called while holding, with the JSON next. `marked` says that markup has announced a
        call: then the name alone starts it, further members are tolerated and the arguments
        may be missing. Without it an object with any other member is no call. A list ends
        where it stops to be one; what follows is text. Returns `TEXT` when no call was made.
        """
        if not (yield from self.accept("[")):
            return (yield from self.json_call(marked=marked))
        yield from self.blank()
        outcome = yield from self.json_call(marked=marked)
        while outcome is Outcome.CALLED:
            yield from self.blank()
            if not (yield from self.accept(",")):
                yield from self.accept("]")
                break
            self.hold()
            yield from self.blank()
            following = yield from self.json_call(marked=marked)
            if following is Outcome.TEXT:
                break
            outcome = following
        return outcome

    def json_series(self, *, marked: bool, closing: str = "") -> Wait[Outcome]:
        """Read calls as `json_calls` does, several in a row, and the marker that closes them."""
        outcome = yield from self.json_calls(marked=marked)
        while outcome is Outcome.CALLED:
            if closing and (yield from self.closing(closing)):
                break
            self.hold()
            yield from self.run(_BETWEEN)
            if (yield from self.peek()) != "{":
                self.release()
                break
            following = yield from self.json_calls(marked=marked)
            if following is Outcome.TEXT:
                break
            outcome = following
        return outcome

    def json_call(self, *, marked: bool) -> Wait[Outcome]:
        """Read one call written as a JSON object, as `json_calls` says."""
        if not (yield from self.accept("{")):
            return self.no_call()
        tool: Tool | None = None
        early: str | None = None
        key = yield from self._member_key()
        while key is not None:
            if key == "name" and tool is None:
                tool = self.tool((yield from self._string()) or "")
                if tool is None:
                    return (yield from self._as_text(JsonScanner(inside="after")))
                if early is not None:
                    return (yield from self._rest_of_call(self._call_with(tool, early)))
                if marked:
                    self.start(tool)
            elif key in _ARGUMENT_KEYS and tool is not None:
                outcome = yield from self.json_arguments(tool, started=marked)
                return (yield from self._rest_of_call(outcome))
            elif marked or key in _KNOWN_KEYS:
                value = yield from self._collected()
                if value is None:
                    break
                early = value if key in _ARGUMENT_KEYS else early
            else:
                return (yield from self._as_text(JsonScanner(inside="value")))
            key = yield from self._next_member_key()
        return (yield from self._call_without_arguments(started=marked and tool is not None))

    def _member_key(self) -> Wait[str | None]:
        yield from self.blank()
        key = yield from self._string()
        yield from self.blank()
        return key if (yield from self.accept(":")) else None

    def _next_member_key(self) -> Wait[str | None]:
        yield from self.blank()
        return (yield from self._member_key()) if (yield from self.accept(",")) else None

    def _string(self) -> Wait[str | None]:
        yield from self.blank()
        if (yield from self.peek()) != '"':
            return None
        text = yield from self._collected()
        return None if text is None else str(json.loads(text))

    def _collected(self) -> Wait[str | None]:
        pieces: list[str] = []
        yield from self.blank()
        ended_well = yield from self.json(JsonScanner(), pieces.append)
        return "".join(pieces) if ended_well else None

    def json_arguments(self, tool: Tool, *, started: bool = False) -> Wait[Outcome]:
        """Read a call whose arguments are the JSON value that is next; starts it unless it is."""
        yield from self.blank()
        if (yield from self.peek()) != "{":
            value = yield from self._collected()
            return self._call_with(tool, value, started=started)
        if not started:
            self.start(tool)
        return self.done(complete=(yield from self.json(JsonScanner(), self.arguments)))

    def json_is_text(self) -> Wait[Outcome]:
        """Release what was held, and with it the JSON value that is next."""
        return (yield from self._as_text(JsonScanner()))

    def _as_text(self, scanner: JsonScanner) -> Wait[Outcome]:
        self.release(onward=True)
        yield from self.json(scanner, discard)
        self.route = None
        return Outcome.TEXT

    def _call_with(self, tool: Tool, value: str | None, *, started: bool = False) -> Outcome:
        arguments = None if value is None else _object_text(value)
        if arguments is None:
            return self.done(complete=False) if started else self.no_call()
        if not started:
            self.start(tool)
        self.arguments(arguments)
        return self.done()

    def _rest_of_call(self, outcome: Outcome) -> Wait[Outcome]:
        if outcome is Outcome.CALLED:
            yield from self.json(JsonScanner(inside="after"), discard)
        return outcome

    def _call_without_arguments(self, *, started: bool) -> Wait[Outcome]:
        if not started:
            return self.no_call()
        closed = yield from self.accept("}")
        if closed:
            self.arguments("{}")
        return self.done(complete=closed)


def _object_text(value: str) -> str | None:
    """Return a JSON value as an object's text: also one inside a string, nothing as empty."""
    if value.startswith('"'):
        value = str(json.loads(value)).strip()
    if value in {"", "null"}:
        return "{}"
    scanner = JsonScanner()
    used = scanner.feed(value)
    complete = scanner.state is JsonState.COMPLETE and used == len(value)
    return scanner.take() if complete and value.startswith("{") else None
