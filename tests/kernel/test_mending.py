"""Calls that a model breaks go on from their last valid character, at most twice."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from pegboard_contracts.conversation import Tool
from pegboard_contracts.events import FormatEvent, ToolArgumentsDelta, ToolCallDone, ToolCallStarted
from pegboard_contracts.formats import ToolFormat
from pegboard_contracts.grammar.examples import GrammarReader
from pegboard_kernel.generation.mending import MendingReader
from pegboard_tool_formats.generic_json import GenericJson
from pegboard_tool_formats.hermes import Hermes
from pegboard_tool_formats.llama3_json import Llama3Json
from pegboard_tool_formats.mistral import Mistral
from pegboard_tool_formats.mistral_nemo import MistralNemo
from pegboard_tool_formats.phi4 import Phi4
from pegboard_tool_formats.qwen3_coder import Qwen3Coder

from tests.kernel.runtime import serving

WEATHER = Tool(
    name="weather",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
)
BEGINNINGS: dict[str, tuple[ToolFormat, str]] = {
    "hermes": (Hermes(), '<tool_call>\n{"name": "weather", "arguments": '),
    "hermes, spelt otherwise": (Hermes(), '<tool_call>{ "name":"weather","arguments" :'),
    "llama3_json": (Llama3Json(), '{"name": "weather", "parameters": '),
    "mistral": (Mistral(), "[TOOL_CALLS]weather[ARGS]"),
    "mistral_nemo": (MistralNemo(), '[TOOL_CALLS][{"name": "weather", "arguments": '),
    "phi4": (Phi4(), '<|tool_call|>[{"name": "weather", "arguments": '),
    "generic_json": (GenericJson(), '{"name": "weather", "arguments": '),
}
BREAKS = {
    "a bare word": ('{"city": ', "Rome}"),
    "a missing quote": ('{"city": "Rome", ', "days: 3}"),
    "a wrong bracket": ('{"city": "Rome", "days": 3', "]"),
    "over several lines": ('{\n  "city": "Rome",\n  "days": ', "three }"),
    "against the schema": ('{"town": {"a": [1, ', "x]"),
}


def told(events: list[FormatEvent]) -> tuple[list[str], str, list[bool]]:
    names = [event.name for event in events if isinstance(event, ToolCallStarted)]
    arguments = "".join(event.text for event in events if isinstance(event, ToolArgumentsDelta))
    return names, arguments, [e.complete for e in events if isinstance(e, ToolCallDone)]


@pytest.mark.parametrize("broken", BREAKS.values(), ids=BREAKS)
@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_broken_call_is_completed_behind_what_was_sent(
    beginning: tuple[ToolFormat, str], broken: tuple[str, str]
) -> None:
    (tool_format, opening), (valid, wrong) = beginning, broken
    reader = MendingReader(lambda new_id: tool_format.reader((WEATHER,), new_id))
    events = reader.feed(opening) + reader.feed(valid) + reader.feed(wrong)
    sent = told(events)[1]
    assert reader.broken
    assert not told(events)[2]
    mend = reader.mend(tool_format, (WEATHER,), 0)
    assert mend is not None
    assert mend.kept < len(wrong)
    rest = GrammarReader(mend.constraint.value).draw(random.Random(1))  # noqa: S311 - no secret
    events += reader.feed(rest) + reader.finish()
    names, arguments, done = told(events)
    assert (names, done) == (["weather"], [True])
    assert arguments.startswith(sent)
    assert isinstance(json.loads(arguments), dict)
    assert len({e.call_id for e in events if isinstance(e, ToolCallStarted)}) == 1


def test_a_call_that_was_ended_too_early_goes_on() -> None:
    reader = MendingReader(lambda new_id: Hermes().reader((WEATHER,), new_id))
    events = reader.feed('<tool_call>\n{"name": "weather", "arguments": {"city": "Ro')
    assert reader.inside
    mend = reader.mend(Hermes(), (WEATHER,), 0)
    assert mend is not None
    events += reader.feed('me", "days": 3}}\n</tool_call>')
    assert told(events) == (["weather"], '{"city": "Rome", "days": 3}', [True])


@pytest.mark.parametrize("wrong", ["city: Rome", '{"city": "Rome"}'])
def test_a_tagged_call_is_completed_where_its_parameters_should_begin(wrong: str) -> None:
    reader = MendingReader(lambda new_id: Qwen3Coder().reader((WEATHER,), new_id))
    events = reader.feed("<tool_call>\n<function=weather>\n") + reader.feed(wrong)
    assert reader.broken
    mend = reader.mend(Qwen3Coder(), (WEATHER,), 0)
    assert mend is not None
    assert mend.kept == 0
    rest = GrammarReader(mend.constraint.value).draw(random.Random(1))  # noqa: S311 - no secret
    events += reader.feed(rest) + reader.finish()
    names, arguments, done = told(events)
    assert (names, done) == (["weather"], [True])
    assert set(json.loads(arguments)) == {"city", "days"}


def test_a_tagged_call_that_was_ended_too_early_goes_on_inside_its_value() -> None:
    reader = MendingReader(lambda new_id: Qwen3Coder().reader((WEATHER,), new_id))
    events = reader.feed("<tool_call>\n<function=weather>\n<parameter=city>\nRo")
    assert reader.inside
    mend = reader.mend(Qwen3Coder(), (WEATHER,), 0)
    assert mend is not None
    rest = "me\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
    assert GrammarReader(mend.constraint.value).shortest().endswith(rest[-24:])
    events += reader.feed(rest) + reader.finish()
    assert told(events) == (["weather"], '{"city": "Rome", "days": 3}', [True])


def test_what_cannot_be_mended_stays_incomplete() -> None:
    reader = MendingReader(lambda new_id: Hermes().reader((WEATHER,), new_id))
    events = reader.feed('<tool_call>\n{"name": "weather", "arguments": {"city": Rome}')
    assert reader.mend(Hermes(), (), 0) is None
    events += reader.give_up() + reader.finish()
    assert told(events) == (["weather"], '{"city": ', [False])


def test_at_most_two_retries_in_a_stream(tmp_path: Path) -> None:
    pieces = ['<tool_call>\n{"name": "weather", "arguments": {"city": ', "Rome}", " end"]
    script: dict[str, Any] = {
        "tool_format": "hermes",
        "rules": [{"match": "call", "pieces": pieces}],
    }

    async def scenario() -> None:
        async with serving(tmp_path, script) as runtime:
            heard = await runtime.ask("call", tools=(WEATHER,))
            done = [event for event in heard.events if isinstance(event, ToolCallDone)]
            assert [event.complete for event in done] == [False]
            log = await runtime.log()
            assert [one["constraint"] is not None for one in log] == [False, True, True]
            rest = GrammarReader(log[1]["constraint"]["value"]).shortest()
            assert json.loads('{"city": ' + rest.partition("}}")[0] + "}")["days"] == 0

    asyncio.run(scenario())
