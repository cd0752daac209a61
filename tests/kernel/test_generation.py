"""Answers: what tokens become, however they are cut, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.engine import TokenEvent
from pegboard_contracts.errors import ApiError
from pegboard_contracts.events import (
    Finished,
    FormatEvent,
    GenerationEvent,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
)
from pegboard_contracts.formats import CallIds, new_call_id
from pegboard_contracts.generation import (
    Constraint,
    FinishReason,
    OutputFormat,
    ReasoningOptions,
    Sampling,
)
from pegboard_kernel.generation.answer import Answer
from pegboard_kernel.generation.format_choice import DecidingReader
from pegboard_kernel.generation.stops import StopFinder
from pegboard_reasoning_formats.think_tags import ThinkTags
from pegboard_tool_formats.hermes import Hermes

from tests.kernel.runtime import Heard, board, request, serving

WEATHER = Tool(name="weather")
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
THOUGHTS = ["<think>", "a ", "b ", "c ", "d ", "</think>", "It ", "is."]
SCRIPT: dict[str, Any] = {
    "tool_format": "hermes",
    "reasoning_format": "think_tags",
    "rules": [
        {"match": "euro", "pieces": ["1 ", {"bytes": "e282"}, {"bytes": "ac"}, "!"]},
        {"match": "think", "pieces": THOUGHTS},
        {"match": "long", "pieces": ["x "], "repeat": 100000},
        {"match": "call", "pieces": ["Sure. ", CALL, " and ", CALL, " done"]},
        {"match": "stop", "pieces": ["The quick br", "own f", "ox jumps", " over"]},
        {"match": "likely", "pieces": ["a", "b"], "logprobs": [[-0.5, [["a", -0.5]]], [-1, []]]},
    ],
}


def test_the_answer_begins_with_accepted_and_ends_with_the_usage(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            heard = await runtime.ask("hello there", sampling=Sampling(temperature=0.0))
            assert heard.text == "hello there"
            accepted, finished = heard.accepted, heard.finished
            assert accepted.model == "scripted"
            assert accepted.sampling.temperature == 0.0
            assert accepted.sampling.top_p == 1.0
            assert accepted.max_output_tokens == 4096 - accepted.prompt_tokens
            assert finished.reason is FinishReason.STOP
            assert finished.usage.output_tokens == 2
            assert finished.usage.prompt_tokens == accepted.prompt_tokens
            counted = await runtime.generator.count(request("hello there"))
            assert counted == accepted.prompt_tokens

    asyncio.run(scenario())


def test_many_streams_never_mix(tmp_path: Path) -> None:
    texts = [" ".join(f"{number}-{word}" for word in range(40)) for number in range(32)]

    async def scenario() -> None:
        async with serving(tmp_path, {"default": {"echo": True, "delay_ms": 1}}) as runtime:
            heard = await asyncio.gather(*(runtime.ask(text) for text in texts))
            assert [one.text for one in heard] == texts

    asyncio.run(scenario())


def test_a_character_is_never_split(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            heard = await runtime.ask("euro")
            assert heard.text == "1 \u20ac!"
            assert heard.finished.usage.output_tokens == 4

    asyncio.run(scenario())


def test_limits_and_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            heard = await runtime.ask("long", max_output_tokens=5)
            assert (heard.text, heard.finished.reason) == ("x " * 5, FinishReason.LENGTH)
            heard = await runtime.ask("stop", stop=("own fox", "\nUser:"))
            assert heard.text == "The quick br"
            assert heard.finished.reason is FinishReason.STOP
            assert heard.finished.stop_string == "own fox"
            assert heard.finished.usage.output_tokens == 3
            heard = await runtime.ask("stop", stop=("own fact",))
            assert heard.text == "The quick brown fox jumps over"
            heard = await runtime.ask("think", stop=("b",))
            assert (heard.reasoning, heard.text) == ("a b c d", "It is.")

    asyncio.run(scenario())


def test_calls_are_read_only_where_tools_are_offered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            heard = await runtime.ask("call", tools=(WEATHER,))
            assert heard.calls == ["weather", "weather"]
            assert heard.finished.reason is FinishReason.TOOL_CALLS
            heard = await runtime.ask("call", tools=(WEATHER,), parallel_tool_calls=False)
            assert heard.calls == ["weather"]
            assert heard.finished.reason is FinishReason.TOOL_CALLS
            assert heard.finished.usage.output_tokens == 2
            none = ToolChoice(mode="none")
            heard = await runtime.ask("call", tools=(WEATHER,), tool_choice=none)
            assert heard.text == f"Sure. {CALL} and {CALL} done"
            assert heard.finished.reason is FinishReason.STOP
            prompts = [one["prompt"] for one in await runtime.log()]
            assert ["weather" in prompt for prompt in prompts] == [True, True, False]

    asyncio.run(scenario())


@pytest.mark.parametrize("budget", [0, 1, 2, 3])
@pytest.mark.parametrize("opened", [False, True])
def test_a_thinking_budget_closes_the_block_and_the_answer_goes_on(
    tmp_path: Path, budget: int, opened: bool
) -> None:
    script = {
        "reasoning_format": "think_tags",
        "prompt_suffix": "<think>\n" if opened else "",
        "rules": [{"match": "think", "pieces": THOUGHTS[1:] if opened else THOUGHTS}],
    }

    async def scenario() -> None:
        async with serving(tmp_path, script) as runtime:
            heard = await runtime.ask("think", reasoning=ReasoningOptions(budget_tokens=budget))
            words = heard.reasoning.split()
            assert words == ["a", "b", "c", "d"][: max(0, budget - (not opened))]
            assert heard.text.endswith("It is.")
            log = await runtime.log()
            assert log[-1]["status"] == "finished"
            assert len(log) == (1 if opened and budget == 0 else 2)
            await runtime.ask("hello")
            server = (await runtime.inspect())["server"]
            assert (server["running"], server["waiting"]) == (0, 0)

    asyncio.run(scenario())


def test_what_cannot_be_honoured_is_refused(tmp_path: Path) -> None:
    async def refusal(**fields: object) -> tuple[int, str | None, str | None]:
        async with serving(tmp_path, SCRIPT) as runtime:
            with pytest.raises(ApiError) as caught:
                await runtime.ask("hello", **fields)
            return caught.value.status, caught.value.code, caught.value.param

    def refused(**fields: object) -> tuple[int, str | None, str | None]:
        return asyncio.run(refusal(**fields))

    output = OutputFormat(kind="json_object")
    assert refused(output_format=output) == (501, "not_supported", "response_format")
    assert refused(top_logprobs=21) == (400, None, "top_logprobs")
    assert refused(tool_choice=ToolChoice(mode="required")) == (400, None, "tool_choice")
    assert refused(model="nobody") == (404, "model_not_found", "model")
    assert refused(conversation=None, prompt_text=" ") == (400, None, "prompt")
    assert refused(conversation=None, prompt_text="x " * 4096)[1] == "context_length_exceeded"


class Forcing(Hermes):
    """Demand calls with a grammar, as formats do."""

    def constraint(
        self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool
    ) -> Constraint | None:
        del tools, parallel
        return Constraint(kind="regex", value="x") if choice.mode == "required" else None


def test_a_forced_call_is_guaranteed_or_an_error(tmp_path: Path) -> None:
    forcing = Forcing()
    plugins = replace(board(), tool_formats={"hermes": forcing})

    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT, plugins=plugins) as runtime:
            forced = {"tools": (WEATHER,), "tool_choice": ToolChoice(mode="required")}
            heard = await runtime.ask("call", **forced)
            assert heard.calls == ["weather", "weather"]
            with pytest.raises(ApiError) as caught:
                await runtime.ask("hello", **forced)
            assert (caught.value.status, caught.value.code) == (500, "tool_call_not_produced")
            await runtime.ask("hello", tools=(WEATHER,))
            constraint = {"kind": "regex", "value": "x"}
            log = await runtime.log()
            # The model may think first: its first word decides, and the answer begins again.
            bound = [None, constraint]
            assert [one["constraint"] for one in log] == [*bound, *bound, None]

    asyncio.run(scenario())


def test_logprobs_belong_to_the_visible_tokens(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SCRIPT) as runtime:
            heard = await runtime.ask("likely", top_logprobs=1)
            told = [one for e in heard.events if isinstance(e, TextDelta) for one in e.logprobs]
            assert [(one.text, one.logprob, one.top) for one in told] == [
                ("a", -0.5, (("a", -0.5),)),
                ("b", -1.0, ()),
            ]

    asyncio.run(scenario())


PIECES = st.lists(st.text("abc<> tool_cal/think", max_size=9), max_size=12)


def cut(text: str, sizes: list[int]) -> list[str]:
    parts: list[str] = []
    for size in sizes:
        parts.append(text[:size])
        text = text[size:]
    return [*parts, text]


@given(st.text("ab", max_size=30), st.lists(st.text("ab", max_size=4), max_size=3), st.data())
def test_stop_strings_do_not_depend_on_the_cut(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.integers(0, 5), max_size=12))
    found: set[tuple[str, str | None]] = set()
    for parts in ([text], list(text), cut(text, sizes)):
        finder = StopFinder(stops)
        shown = "".join([*map(finder.feed, parts), finder.finish()])
        found.add((shown, finder.found))
    assert len(found) == 1
    shown, stop = found.pop()
    ends = [at + len(s) for s in stops if s and (at := text.find(s)) >= 0]
    assert (stop is None) == (not ends)
    assert shown + (stop or "") == text[: min(ends, default=len(text))]


@given(st.text("<>tol_ca[]/ {", max_size=40), st.lists(st.integers(0, 6), max_size=12))
def test_an_undecided_answer_does_not_depend_on_the_cut(text: str, sizes: list[int]) -> None:
    text = text.replace("[", CALL).replace("]", "<tool_call>")
    formats = board().tool_formats

    def read(parts: list[str]) -> str:
        reader = DecidingReader(formats, (WEATHER,), iter_ids())
        events = [event for part in parts for event in reader.feed(part)] + reader.finish()
        return joined(events)

    assert read([text]) == read(list(text)) == read(cut(text, sizes))


def iter_ids() -> CallIds:
    numbers = iter(range(1000))
    return lambda: f"call_{next(numbers)}"


def joined(events: list[FormatEvent]) -> str:
    parts: list[str] = []
    for event in events:
        text = event.text if isinstance(event, TextDelta | ReasoningDelta) else repr(event)
        if isinstance(event, ToolArgumentsDelta):
            text = event.text
        parts.append(text)
    return "".join(parts)


@given(PIECES, st.lists(st.integers(1, 4), max_size=8), st.booleans())
def test_events_and_usage_do_not_depend_on_how_tokens_arrive(
    pieces: list[str], sizes: list[int], opened: bool
) -> None:
    tokens = [TokenEvent(1, piece, [index]) for index, piece in enumerate(pieces)]

    def read(batches: list[list[TokenEvent]]) -> tuple[str, str, Finished]:
        answer = Answer(
            reasoning=ThinkTags().reader(opened=opened),
            calls=Hermes().reader((WEATHER,), new_call_id),
            stops=("cab",),
        )
        events: list[GenerationEvent] = []
        for batch in batches:
            for token in batch:
                if not answer.stopped:
                    answer.take(token)
            events += answer.take_events()
        answer.finish("stop", 7)
        events += answer.take_events()
        heard = Heard(events)
        return heard.text, heard.reasoning, heard.finished

    batches: list[list[TokenEvent]] = []
    rest = tokens
    for size in sizes:
        batches.append(rest[:size])
        rest = rest[size:]
    assert read([tokens]) == read([[token] for token in tokens]) == read([*batches, rest])
