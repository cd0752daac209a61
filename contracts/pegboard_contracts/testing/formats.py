"""The laws of tool and reasoning formats, as test classes to subclass.

    class TestMine(ToolFormatLaws):
        plugin = MyFormat
        transcripts = (Transcript("<call>peg{}</call>", calls=(("peg", {}),)),)

The laws try the transcripts, whole and cut anywhere, their halves, their damaged forms and
arbitrary text, and floods of their openings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import count, pairwise
from time import process_time
from typing import Any, ClassVar

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pegboard_contracts.conversation import Tool
from pegboard_contracts.events import (
    FormatEvent,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallDone,
    ToolCallStarted,
)
from pegboard_contracts.formats import Reader, ReasoningFormat, ToolFormat
from pegboard_contracts.scanning import join_deltas
from pegboard_contracts.testing.plugins import PluginLaws

_law = settings(
    max_examples=150,
    deadline=None,
    # Subclassing is how these laws are used: each class is an executor of its own.
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)
_PIECE = 4096


class Transcript(msgspec.Struct, frozen=True):
    """Carry an answer of a model and what it means.

    `tools` are the declared ones; left out, they are those of `calls`. `complete` is
    whether the last call is. `opened` starts a reasoning format inside a block.
    """

    answer: str
    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    reasoning: str = ""
    tools: tuple[Tool, ...] | None = None
    complete: bool = True
    opened: bool = False

    def declared(self) -> tuple[Tool, ...]:
        """Return the tools a reader of this answer is given."""
        if self.tools is not None:
            return self.tools
        return tuple(Tool(name=name) for name in dict.fromkeys(name for name, _ in self.calls))


class Call(msgspec.Struct):
    """Carry what the events of one call add up to."""

    call_id: str
    name: str
    arguments: str = ""
    complete: bool | None = None


def read(reader: Reader, pieces: Iterable[str]) -> list[FormatEvent]:
    """Feed the pieces, finish, and join what came out."""
    events = [event for piece in pieces for event in reader.feed(piece)]
    return join_deltas([*events, *reader.finish()])


def text_of(events: Iterable[FormatEvent]) -> str:
    """Join the visible text."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def reasoning_of(events: Iterable[FormatEvent]) -> str:
    """Join the reasoning."""
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


def calls_of(events: Iterable[FormatEvent]) -> list[Call]:
    """Add up the calls, checking that their events come in order."""
    calls: list[Call] = []
    for event in events:
        if isinstance(event, ToolCallStarted):
            assert event.index == len(calls)
            assert not calls or calls[-1].complete is not None, "two calls are open at once"
            calls.append(Call(event.call_id, event.name))
        elif isinstance(event, ToolArgumentsDelta):
            assert event.index == len(calls) - 1
            assert calls[-1].complete is None, "arguments after the end of their call"
            calls[-1].arguments += event.text
        elif isinstance(event, ToolCallDone):
            assert event.index == len(calls) - 1
            assert calls[-1].complete is None, "a call ended twice"
            calls[-1].complete = event.complete
    return calls


def counted_ids() -> Callable[[], str]:
    """Make call ids that are the same in every run."""
    numbers = count()
    return lambda: f"call_{next(numbers):024d}"


def cuts(text: str) -> Iterable[list[str]]:
    """Cut a text in two at every place, and into characters."""
    yield list(text)
    for at in range(len(text) + 1):
        yield [text[:at], text[at:]]


def chunks(text: str, size: int) -> list[str]:
    """Cut a text into pieces of a size."""
    return [text[at : at + size] for at in range(0, len(text), size)]


class FormatLaws(PluginLaws):
    """Hold what tool and reasoning formats have in common."""

    transcripts: ClassVar[Sequence[Transcript]] = ()
    templates: ClassVar[Sequence[str]] = ()
    """Chat templates, or telling parts of them, that are written for the format."""

    def make_reader(self, transcript: Transcript) -> Reader:
        """Make a fresh reader for an answer to that transcript's request."""
        raise NotImplementedError

    def markers(self) -> tuple[str, ...]:
        """Return the format's own markup, for text that looks like it."""
        raise NotImplementedError

    def check(self, transcript: Transcript, events: list[FormatEvent]) -> None:
        """Hold what is true of every answer, also of nonsense."""
        raise NotImplementedError

    def check_meaning(self, transcript: Transcript, events: list[FormatEvent]) -> None:
        """Hold what the transcript says it means."""
        raise NotImplementedError

    def test_there_are_transcripts(self) -> None:
        """Laws without answers to try would hold of anything."""
        assert len(self.transcripts) >= 2

    def test_transcripts_mean_what_they_say(self) -> None:
        """The whole answer in one piece gives what the transcript names."""
        for transcript in self.transcripts:
            self.check_meaning(transcript, read(self.make_reader(transcript), [transcript.answer]))

    def test_any_single_cut_gives_the_same(self) -> None:
        """Every cut in two, and the answer character by character, give the same events."""
        for transcript in self.transcripts:
            whole = read(self.make_reader(transcript), [transcript.answer])
            for pieces in cuts(transcript.answer):
                assert read(self.make_reader(transcript), pieces) == whole, pieces

    @_law
    @given(st.data())
    def test_any_cuts_of_any_text_give_the_same(self, data: st.DataObject) -> None:
        """However an answer, a damaged one or nonsense is cut, the events are the same."""
        transcript = data.draw(st.sampled_from(self.transcripts))
        answer = data.draw(self._answers(transcript))
        places = data.draw(st.lists(st.integers(0, len(answer)), max_size=12).map(sorted))
        pieces = [answer[start:end] for start, end in pairwise([0, *places, len(answer)])]
        whole = read(self.make_reader(transcript), [answer])
        self.check(msgspec.structs.replace(transcript, answer=answer), whole)
        assert read(self.make_reader(transcript), pieces) == whole
        assert read(self.make_reader(transcript), list(answer)) == whole

    def test_an_answer_may_stop_anywhere(self) -> None:
        """Every beginning of an answer is read without complaint."""
        for transcript in self.transcripts:
            for end in range(len(transcript.answer)):
                beginning = transcript.answer[:end]
                events = read(self.make_reader(transcript), [beginning])
                self.check(msgspec.structs.replace(transcript, answer=beginning), events)

    def test_readers_share_nothing(self) -> None:
        """Two answers read in turns come out as if each were alone."""
        for one, other in pairwise(self.transcripts):
            readers = self.make_reader(one), self.make_reader(other)
            got: tuple[list[FormatEvent], list[FormatEvent]] = ([], [])
            for at in range(max(len(one.answer), len(other.answer))):
                got[0].extend(readers[0].feed(one.answer[at : at + 1]))
                got[1].extend(readers[1].feed(other.answer[at : at + 1]))
            for transcript, reader, events in zip((one, other), readers, got, strict=True):
                alone = read(self.make_reader(transcript), list(transcript.answer))
                assert join_deltas([*events, *reader.finish()]) == alone

    def test_floods_take_linear_time(self) -> None:
        """A megabyte of openings in pieces costs about four times a quarter of one."""
        for flood in self._floods():
            small = min(self._cost(flood, 1 << 18) for _ in range(3))
            most = 8 * small + 0.1
            # A busy machine may spoil one measurement, never three in a row.
            assert any(self._cost(flood, 1 << 20) < most for _ in range(3)), flood

    def test_its_templates_match(self) -> None:
        """The format knows the templates written for it, and not a plain one."""
        made = self.plugin()
        assert isinstance(made, ToolFormat | ReasoningFormat)
        for template in self.templates:
            assert made.matches_template(template), template
        assert not made.matches_template("{% for m in messages %}{{ m.content }}{% endfor %}")

    def _answers(self, transcript: Transcript) -> st.SearchStrategy[str]:
        """Draw the answer itself, a damaged form of it, or bits of markup among any text."""
        answer = transcript.answer
        places = st.integers(0, len(answer))
        scraps = st.sampled_from([*self.markers(), *_SCRAPS])
        damaged = st.tuples(places, places, scraps | st.text(max_size=4)).map(
            lambda drawn: answer[: drawn[0]] + drawn[2] + answer[drawn[1] :]
        )
        nonsense = st.lists(scraps | st.text(max_size=6), max_size=12).map("".join)
        return st.just(answer) | damaged | nonsense | st.text(max_size=60)

    def _floods(self) -> list[str]:
        answers = [transcript.answer for transcript in self.transcripts]
        halves = "".join(answer[: len(answer) // 2] for answer in answers)
        return [*self.markers(), halves, max(answers, key=len)[:-1]]

    def _cost(self, flood: str, size: int) -> float:
        reader = self.make_reader(self.transcripts[0])
        pieces = chunks(flood * (size // len(flood)), _PIECE)
        started = process_time()
        for piece in pieces:
            reader.feed(piece)
        reader.finish()
        return process_time() - started


_SCRAPS = ("{", "}", "[", "]", '"', "\\", ":", ",", "\n", " ", "1", '"name"', '"arguments"', "true")


class ToolFormatLaws(FormatLaws):
    """Hold what every tool format must do."""

    def make_reader(self, transcript: Transcript) -> Reader:
        """Make a reader that knows the transcript's tools."""
        return self.format().reader(transcript.declared(), counted_ids())

    def format(self) -> ToolFormat:
        """Make the format."""
        made = self.plugin()
        assert isinstance(made, ToolFormat)
        return made

    def markers(self) -> tuple[str, ...]:
        """Return the markers it opens calls by and the tokens it keeps."""
        made = self.format()
        return tuple(dict.fromkeys((*made.opening_markers, *made.kept_tokens)))

    def check(self, transcript: Transcript, events: list[FormatEvent]) -> None:
        """Calls are well-formed and declared, and no text is lost or invented."""
        calls = calls_of(events)
        names = {tool.name for tool in transcript.declared()}
        assert all(call.name in names for call in calls)
        assert all(call.complete is not None for call in calls)
        assert len({call.call_id for call in calls}) == len(calls)
        for call in calls:
            assert not call.complete or isinstance(json.loads(call.arguments), dict)
        text = text_of(events)
        assert text == transcript.answer if not calls else _is_part(text, transcript.answer)
        assert not reasoning_of(events)

    def check_meaning(self, transcript: Transcript, events: list[FormatEvent]) -> None:
        """The calls, in order, with their arguments, and the text around them."""
        calls = calls_of(events)
        assert text_of(events) == transcript.text, transcript.answer
        assert [call.name for call in calls] == [name for name, _ in transcript.calls]
        assert [call.complete for call in calls[:-1]] == [True] * (len(calls) - 1 if calls else 0)
        for call, (_, arguments) in zip(calls, transcript.calls, strict=True):
            if call.complete:
                assert json.loads(call.arguments) == arguments, transcript.answer
        assert not calls or calls[-1].complete is transcript.complete, transcript.answer

    def test_without_tools_everything_is_text(self) -> None:
        """A call of a name nobody declared stays as the model wrote it."""
        for transcript in self.transcripts:
            unknown = msgspec.structs.replace(transcript, tools=())
            events = read(self.make_reader(unknown), list(transcript.answer))
            assert text_of(events) == transcript.answer
            assert not calls_of(events)

    def test_arguments_stream(self) -> None:
        """Long arguments come out in several fragments, before their call ends."""
        longest = max(self.transcripts, key=lambda transcript: len(transcript.answer))
        reader = self.make_reader(longest)
        fragments = [
            event
            for char in longest.answer
            for event in reader.feed(char)
            if isinstance(event, ToolArgumentsDelta)
        ]
        assert len(fragments) > 2 * len(longest.calls)

    def test_ids_are_the_servers_and_stable(self) -> None:
        """Ids differ between calls and are the same however the answer is cut."""
        for transcript in self.transcripts:
            whole = calls_of(read(self.make_reader(transcript), [transcript.answer]))
            chars = calls_of(read(self.make_reader(transcript), list(transcript.answer)))
            assert [call.call_id for call in whole] == [call.call_id for call in chars]
            assert len({call.call_id for call in whole}) == len(whole)


class ReasoningFormatLaws(FormatLaws):
    """Hold what every reasoning format must do."""

    prompts_that_open: ClassVar[Sequence[str]] = ()
    """Rendered prompts that end inside an open block."""

    def format(self) -> ReasoningFormat:
        """Make the format."""
        made = self.plugin()
        assert isinstance(made, ReasoningFormat)
        return made

    def make_reader(self, transcript: Transcript) -> Reader:
        """Make a reader that starts as the transcript does."""
        return self.format().reader(opened=transcript.opened)

    def markers(self) -> tuple[str, ...]:
        """Return the tokens it keeps."""
        return self.format().kept_tokens

    def check(self, transcript: Transcript, events: list[FormatEvent]) -> None:
        """Nothing but text and reasoning, all of it from the answer and in its order."""
        assert all(isinstance(event, TextDelta | ReasoningDelta) for event in events)
        said = "".join(
            event.text for event in events if isinstance(event, TextDelta | ReasoningDelta)
        )
        assert _is_part(said, transcript.answer)
        if not transcript.opened and not any(mark in transcript.answer for mark in self.markers()):
            assert text_of(events) == transcript.answer

    def check_meaning(self, transcript: Transcript, events: list[FormatEvent]) -> None:
        """The reasoning and the text, each without markup."""
        assert reasoning_of(events) == transcript.reasoning, transcript.answer
        assert text_of(events) == transcript.text, transcript.answer

    def test_prompts_that_open_are_seen(self) -> None:
        """A prompt that ends in an open block is known, a plain or empty one is not."""
        made = self.format()
        assert all(made.opened_by(prompt) for prompt in self.prompts_that_open)
        assert not made.opened_by("")
        assert not made.opened_by("user: hello\nassistant: ")

    def test_it_knows_where_it_is(self) -> None:
        """`inside` starts as told and, at the end, agrees with where the text would go on."""
        for transcript in self.transcripts:
            reader = self.format().reader(opened=transcript.opened)
            assert reader.inside is transcript.opened
            for char in transcript.answer:
                reader.feed(char)
            inside = reader.inside
            events = [*reader.feed("peg"), *reader.finish()]
            assert (reasoning_of(events)[-3:] == "peg") is inside


def _is_part(text: str, whole: str) -> bool:
    """Tell whether `text` is `whole` with some characters left out."""
    rest = iter(whole)
    return all(char in rest for char in text)
