"""The toolbox of format authors: read text that arrives in pieces as one program.

A reader is a small state machine by contract (`feed`, `finish`). Here it is written as a
generator that reads from top to bottom and waits where it needs more text:

    def program(self) -> Wait[None]:
        while (yield from self.until(_OPENING, self.say)):
            name = yield from self.run(_NAME, limit=64)

Every character is consumed once, so any program without a rewind is linear.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from itertools import groupby
from typing import TypeVar

from pegboard_contracts.events import (
    FormatEvent,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
)
from pegboard_contracts.json_text import JsonScanner, JsonState

Value = TypeVar("Value")
Wait = Generator[None, None, Value]
"""A step of a program: `yield from` it, and it returns when enough text is there."""

Sink = Callable[[str], None]

_BLANK = re.compile(r"[ \t\r\n]*")


def discard(text: str) -> None:
    """Take text and do nothing with it: the sink of markup."""
    del text


def join_deltas(events: Iterable[FormatEvent]) -> list[FormatEvent]:
    """Join neighbouring deltas of one kind (and one call) into one."""
    joined: list[FormatEvent] = []
    for (kind, index), group in groupby(events, key=_kind):
        if kind is TextDelta:
            joined.append(TextDelta(_joined_text(group)))
        elif kind is ReasoningDelta:
            joined.append(ReasoningDelta(_joined_text(group)))
        elif kind is ToolArgumentsDelta:
            joined.append(ToolArgumentsDelta(index, _joined_text(group)))
        else:
            joined.extend(group)
    return joined


def _kind(event: FormatEvent) -> tuple[type | None, int]:
    if isinstance(event, TextDelta) and event.logprobs:
        return None, 0
    return type(event), event.index if isinstance(event, ToolArgumentsDelta) else 0


def _joined_text(deltas: Iterable[FormatEvent]) -> str:
    return "".join(
        delta.text
        for delta in deltas
        if isinstance(delta, TextDelta | ReasoningDelta | ToolArgumentsDelta)
    )


class Markers:
    """Find the first of several markers, holding back only what may become one.

    Of markers that begin at the same place the longest wins.
    """

    def __init__(self, *markers: str) -> None:
        """Prepare the search; no marker is empty."""
        longest_first = sorted(markers, key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(marker) for marker in longest_first))
        self._beginnings = frozenset(
            marker[:size] for marker in markers for size in range(1, len(marker))
        )
        self._firsts = frozenset(marker[0] for marker in markers)
        self._reach = max(map(len, markers)) - 1

    def search(self, text: str, start: int = 0, *, last: bool = False) -> tuple[int, str]:
        """Return where the plain text from `start` ends, and the marker there.

        The marker is empty when none is certain yet; what follows the position is then the
        beginning of a marker, and nothing when `last` says that no text will follow.
        """
        found = self._pattern.search(text, start)
        certain = len(text) if last else self._beginning(text, start)
        if found and found.start() < certain:
            return found.start(), found.group()
        return certain, ""

    def _beginning(self, text: str, start: int) -> int:
        for at in range(max(start, len(text) - self._reach), len(text)):
            if text[at] in self._firsts and text[at:] in self._beginnings:
                return at
        return len(text)


class SequentialReader(ABC):
    """Be the base of readers written as one program; subclasses add `program`.

    What a program consumes also goes to `route`, when that is set: a way to keep markup
    until it is certain that it is markup.
    """

    def __init__(self) -> None:
        """Start with nothing read."""
        self.route: Sink | None = None
        self._unread = ""
        self._at = 0
        self._ended = False
        self._events: list[FormatEvent] = []
        self._running: Wait[None] | None = None

    @abstractmethod
    def program(self) -> Wait[None]:
        """Read the whole answer; returns when the text has ended."""

    def feed(self, delta: str) -> list[FormatEvent]:
        """Take the next piece and return what is now certain."""
        self._unread = self._unread[self._at :] + delta
        self._at = 0
        return self._advance()

    def finish(self) -> list[FormatEvent]:
        """Return what was held back."""
        self._ended = True
        return self._advance()

    def _advance(self) -> list[FormatEvent]:
        if self._running is None:
            self._running = self.program()
        next(self._running, None)
        events, self._events = self._events, []
        return events if len(events) < 2 else join_deltas(events)

    def emit(self, event: FormatEvent) -> None:
        """Add an event to what `feed` returns."""
        self._events.append(event)

    def say(self, text: str) -> None:
        """Emit visible text."""
        self._events.append(TextDelta(text))

    def _consume(self, end: int) -> str:
        piece = self._unread[self._at : end]
        self._at = end
        if piece and self.route is not None:
            self.route(piece)
        return piece

    def more(self) -> Wait[bool]:
        """Wait for a character; false at the end of the text."""
        while self._at >= len(self._unread):
            if self._ended:
                return False
            yield
        return True

    def peek(self) -> Wait[str]:
        """Return the next character without consuming it; empty at the end."""
        return self._unread[self._at] if (yield from self.more()) else ""

    def next_is(self, *literals: str) -> Wait[bool]:
        """Tell whether one of these texts is next; consumes nothing."""
        while not self._unread.startswith(literals, self._at):
            unread = self._unread[self._at :]
            if self._ended or not any(literal.startswith(unread) for literal in literals):
                return False
            yield
        return True

    def accept(self, literal: str) -> Wait[bool]:
        """Consume exactly this text if it is next."""
        found = yield from self.next_is(literal)
        if found:
            self._consume(self._at + len(literal))
        return found

    def blank(self) -> Wait[str]:
        """Consume blanks and line breaks, and return them."""
        return (yield from self.run(_BLANK))

    def run(self, pattern: re.Pattern[str], limit: int | None = None) -> Wait[str]:
        """Consume what matches a pattern of the form `[...]*`, at most `limit` characters."""
        pieces: list[str] = []
        left = limit
        while True:
            stop = len(self._unread) if left is None else self._at + left
            match = pattern.match(self._unread, self._at, stop)
            piece = self._consume(match.end() if match else self._at)
            pieces.append(piece)
            left = None if left is None else left - len(piece)
            if self._at < len(self._unread) or left == 0 or self._ended:
                return "".join(pieces)
            yield

    def header(self, closing: str, inner: tuple[str, ...], limit: int) -> Wait[str | None]:
        """Consume up to and including `closing`, and return what came before it.

        `inner` markers may stand in between and count as blanks. `None` when any other
        marker that begins like `closing` comes first, or more than `limit` characters.
        """
        plain = re.compile(f"[^{re.escape(closing[0])}]*")
        words = ""
        while len(words) <= limit:
            words += yield from self.run(plain, limit + 1 - len(words))
            if (yield from self.accept(closing)):
                return words
            for marker in inner:
                if (yield from self.accept(marker)):
                    words += " "
                    break
            else:
                return None
        return None

    def until(self, markers: Markers, sink: Sink) -> Wait[str]:
        """Hand text to `sink` up to the first marker; consume and return it, empty at the end."""
        while True:
            end, marker = markers.search(self._unread, self._at, last=self._ended)
            if end > self._at:
                sink(self._consume(end))
            if marker:
                return self._consume(end + len(marker))
            if self._ended:
                return ""
            yield

    def rest(self, sink: Sink) -> Wait[None]:
        """Hand everything up to the end of the text to `sink`."""
        while (yield from self.more()):
            sink(self._consume(len(self._unread)))

    def json(self, scanner: JsonScanner, sink: Sink) -> Wait[bool]:
        """Hand a value's certain text to `sink`; true when it ended well."""
        while scanner.state is JsonState.OPEN and (yield from self.more()):
            self._consume(scanner.feed(self._unread, self._at))
            certain = scanner.take()
            if certain:
                sink(certain)
        state = scanner.finish()
        certain = scanner.take()
        if certain:
            sink(certain)
        return state is JsonState.COMPLETE
