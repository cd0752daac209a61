"""The kit catches formats that break a law."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from pegboard_contracts.conversation import Tool
from pegboard_contracts.events import (
    FormatEvent,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallDone,
    ToolCallStarted,
)
from pegboard_contracts.formats import CallIds, Reader, ToolFormat
from pegboard_contracts.plugin import Plugin
from pegboard_contracts.testing.formats import ToolFormatLaws, Transcript
from pegboard_contracts.testing.plugins import PluginLaws


class _Whole:
    """Recognize `!name` only when it arrives in one piece."""

    def __init__(self, tools: Sequence[Tool], new_id: CallIds) -> None:
        self.names = {tool.name for tool in tools}
        self.new_id = new_id

    def feed(self, delta: str) -> list[FormatEvent]:
        name = delta.removeprefix("!")
        if name == delta or name not in self.names:
            return [TextDelta(delta)]
        return [
            ToolCallStarted(0, self.new_id(), name),
            ToolArgumentsDelta(0, "{}"),
            ToolCallDone(0),
        ]

    def finish(self) -> list[FormatEvent]:
        return []


class _Lossy(_Whole):
    def feed(self, delta: str) -> list[FormatEvent]:
        return [event for event in super().feed(delta) if not isinstance(event, TextDelta)]


class _Slow(_Whole):
    seen = ""

    def feed(self, delta: str) -> list[FormatEvent]:
        self.seen += delta
        for _ in range(15):
            self.seen.count("?")
        return [TextDelta(delta)]


def _laws(reader: Callable[[Sequence[Tool], CallIds], Reader]) -> ToolFormatLaws:
    class Broken(ToolFormat):
        opening_markers = ("!",)

        def matches_template(self, template: str) -> bool:
            return bool(template)

        def reader(self, tools: Sequence[Tool], new_id: CallIds) -> Reader:
            return reader(tools, new_id)

    class Laws(ToolFormatLaws):
        plugin = Broken
        transcripts = (Transcript("!peg", calls=(("peg", {}),)), Transcript("peg", text="peg"))

    return Laws()


def test_a_reader_that_depends_on_the_cut_is_caught() -> None:
    laws = _laws(_Whole)
    laws.test_transcripts_mean_what_they_say()
    with pytest.raises(AssertionError):
        laws.test_any_single_cut_gives_the_same()


def test_a_reader_that_loses_text_is_caught() -> None:
    with pytest.raises(AssertionError):
        _laws(_Lossy).test_transcripts_mean_what_they_say()
    with pytest.raises(AssertionError):
        _laws(_Lossy).test_without_tools_everything_is_text()
    with pytest.raises(AssertionError):
        _laws(_Lossy).test_an_answer_may_stop_anywhere()


def test_a_quadratic_reader_is_caught() -> None:
    with pytest.raises(AssertionError):
        _laws(_Slow).test_floods_take_linear_time()


def test_a_format_that_matches_every_template_is_caught() -> None:
    with pytest.raises(AssertionError):
        _laws(_Whole).test_its_templates_match()


def test_a_plugin_without_a_line_or_an_entry_point_is_caught() -> None:
    class Silent(Plugin):
        pass

    class Laws(PluginLaws):
        plugin = Silent

    with pytest.raises(AssertionError):
        Laws().test_its_manifest_is_well_formed()
    with pytest.raises(AssertionError):
        Laws().test_its_entry_point_is_the_class()
