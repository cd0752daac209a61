"""The toolbox for readers: markers, and programs that wait for text."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st
from pegboard_contracts.events import FormatEvent, ReasoningDelta, TextDelta, ToolArgumentsDelta
from pegboard_contracts.scanning import Markers, SequentialReader, Wait, discard, join_deltas


def test_only_a_possible_marker_is_held_back() -> None:
    markers = Markers("<call>", "<call:x>")
    assert markers.search("a < b <ca") == (6, "")
    assert markers.search("a < b <cat") == (10, "")
    assert markers.search("a <ca", last=True) == (5, "")
    assert markers.search("a <call> b") == (2, "<call>")
    assert markers.search("a <call> b", 3) == (10, "")


def test_the_earliest_marker_wins_and_the_longest_of_those() -> None:
    markers = Markers("[T]", "[T] [{", "[")
    assert markers.search("x[T]y") == (1, "[T]")
    assert markers.search("x[T] [{") == (1, "[T] [{")
    assert markers.search("x[T] ") == (1, "")
    assert markers.search("x[T] ", last=True) == (1, "[T]")
    assert markers.search("x[y[T]") == (1, "[")


class _Words(SequentialReader):
    """Say words in angle brackets as reasoning, everything else as text."""

    _opening = Markers("<")

    def program(self) -> Wait[None]:
        while (yield from self.until(self._opening, self.say)):
            word = yield from self.run(re.compile("[a-z]*"), 5)
            closed = yield from self.accept(">>")
            self.emit(ReasoningDelta(word + ("!" if closed else "?")))


@given(st.text(alphabet="ab<> ", max_size=30), st.lists(st.integers(0, 30), max_size=5).map(sorted))
def test_a_program_reads_the_same_however_its_text_is_cut(text: str, places: list[int]) -> None:
    bounds = [0, *(min(place, len(text)) for place in places), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(bounds)]
    results: list[list[FormatEvent]] = []
    for cut in (pieces, [text], list(text)):
        reader = _Words()
        events = [event for piece in cut for event in reader.feed(piece)]
        results.append(join_deltas([*events, *reader.finish()]))
    assert results[0] == results[1] == results[2]


def test_a_program_waits_only_where_it_must() -> None:
    reader = _Words()
    assert reader.feed("one <") == [TextDelta("one ")]
    assert reader.feed("two>") == []
    assert reader.feed(">") == [ReasoningDelta("two!")]
    assert reader.feed("<abcdefg") == [ReasoningDelta("abcde?"), TextDelta("fg")]
    assert reader.feed("<a>") == []
    assert reader.finish() == [ReasoningDelta("a?"), TextDelta(">")]


class _Headers(SequentialReader):
    """Say what stands before `|end|`, with `|in|` as a blank, else `none` and the rest."""

    def program(self) -> Wait[None]:
        header = yield from self.header("|end|", ("|in|",), 8)
        self.say("none" if header is None else header)
        yield from self.rest(self.say)


def test_a_header_ends_or_is_none() -> None:
    def read(text: str) -> str:
        reader = _Headers()
        events = [event for char in text for event in reader.feed(char)] + reader.finish()
        return "".join(event.text for event in events if isinstance(event, TextDelta))

    assert read("a|in|b|end|c") == "a bc"
    assert read("a|out|") == "none|out|"
    assert read("a" * 12) == "none" + "aaa"
    assert read("|in|" * 10).startswith("none")


def test_neighbouring_deltas_are_joined() -> None:
    deltas: list[FormatEvent] = [
        TextDelta("a"),
        TextDelta("b"),
        ToolArgumentsDelta(0, "{"),
        ToolArgumentsDelta(0, "}"),
    ]
    assert join_deltas([*deltas, ToolArgumentsDelta(1, "{"), ReasoningDelta("c")]) == [
        TextDelta("ab"),
        ToolArgumentsDelta(0, "{}"),
        ToolArgumentsDelta(1, "{"),
        ReasoningDelta("c"),
    ]
    discard("nothing happens")
