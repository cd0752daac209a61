"""The event ladder: whatever is generated, stream and final object say the same."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pegboard_contracts.errors import ApiError
from pegboard_contracts.events import (
    Accepted,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallDone,
    ToolCallStarted,
)
from pegboard_contracts.generation import FinishReason, Sampling, Usage
from pegboard_routes._responses.event_ladder import EventLadder, LadderOptions
from pegboard_routes._responses.response_object import ResponseObject

TEXT = st.text(st.sampled_from('ab"\\\n é😀'), max_size=4)


@st.composite
def answers(draw: st.DrawFn) -> list[GenerationEvent]:
    events: list[GenerationEvent] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from("trc"), max_size=6)):
        if kind == "t":
            events += [TextDelta(text) for text in draw(st.lists(TEXT, max_size=3))]
        elif kind == "r":
            events += [ReasoningDelta(text) for text in draw(st.lists(TEXT, max_size=3))]
        else:
            events.append(ToolCallStarted(calls, f"call_{calls}", "f"))
            events += [ToolArgumentsDelta(calls, t) for t in draw(st.lists(TEXT, max_size=3))]
            if draw(st.booleans()):
                events.append(ToolCallDone(calls, draw(st.booleans())))
            calls += 1
    return events


options = st.builds(
    LadderOptions,
    reasoning_events=st.sampled_from(("text", "summary", "both")),
    sealed_reasoning=st.booleans(),
    max_tool_calls=st.none() | st.integers(1, 2),
)


def climb(events: list[GenerationEvent], options: LadderOptions, end: str) -> list[dict[str, Any]]:
    draft = ResponseObject(id="resp_0", created_at=1, status="in_progress", model="m")
    ladder = EventLadder(draft, options)
    ladder.accept(
        Accepted(model="m", prompt_tokens=3, sampling=Sampling(top_p=0.5), max_output_tokens=9)
    )
    ladder.start()
    for event in events:
        ladder.take(event)
    if end in ("stop", "length"):
        ladder.take(Finished(reason=FinishReason(end), usage=Usage(output_tokens=2)))
        ladder.finish(2)
    elif end == "fail":
        ladder.fail(ApiError(500, "it broke"), "server_error", 2)
    else:
        ladder.stop("cancelled", 2)
    terminal = ladder.conclude()
    told = [*ladder.take_events(), terminal]
    assert all(json.loads(event.payload)["type"] == event.name for event in told)
    return [json.loads(event.payload) for event in told]


ends = st.sampled_from(("stop", "length", "fail", "cancel"))


@given(answers(), options, ends)
def test_sequence_numbers_have_no_gap(
    events: list[GenerationEvent], options: LadderOptions, end: str
) -> None:
    told = climb(events, options, end)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))


@given(answers(), options, ends)
def test_every_item_and_part_that_is_added_is_done_in_its_place(
    events: list[GenerationEvent], options: LadderOptions, end: str
) -> None:
    told = climb(events, options, end)
    added = [event for event in told if event["type"] == "response.output_item.added"]
    done = [event for event in told if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in added] == list(range(len(added)))
    assert [(e["output_index"], e["item"]["id"]) for e in added] == [
        (e["output_index"], e["item"]["id"]) for e in done
    ]
    for kind in ("content_part", "reasoning_summary_part"):
        begun = [e["item_id"] for e in told if e["type"] == f"response.{kind}.added"]
        ended = [e["item_id"] for e in told if e["type"] == f"response.{kind}.done"]
        assert begun == ended
    assert told[-1]["response"]["output"] == [event["item"] for event in done]


@given(answers(), options, ends)
def test_deltas_add_up_to_what_the_final_object_says(
    events: list[GenerationEvent], options: LadderOptions, end: str
) -> None:
    told = climb(events, options, end)
    joined: dict[tuple[str, str], str] = {}
    for event in told:
        if event["type"].endswith(".delta"):
            assert event["delta"]
            key = (event["type"], event["item_id"])
            joined[key] = joined.get(key, "") + event["delta"]
    for item in told[-1]["response"]["output"]:
        if item["type"] == "message":
            (part,) = item["content"]
            assert joined.get(("response.output_text.delta", item["id"]), "") == part["text"]
        elif item["type"] == "function_call":
            key = ("response.function_call_arguments.delta", item["id"])
            assert joined.get(key, "") == item["arguments"]
        else:
            for kind, parts in (("text", item["content"]), ("summary_text", item["summary"])):
                key = (f"response.reasoning_{kind}.delta", item["id"])
                if key in joined:
                    assert joined[key] == parts[0]["text"]


@given(answers(), options, ends)
def test_status_agrees_with_the_items_and_the_terminal_event(
    events: list[GenerationEvent], options: LadderOptions, end: str
) -> None:
    told = climb(events, options, end)
    final = told[-1]["response"]
    if any(item.get("status") == "incomplete" for item in final["output"]):
        assert final["status"] != "completed"
    assert "in_progress" not in {item.get("status") for item in final["output"]}
    expected = {"completed": "completed", "failed": "failed"}.get(final["status"], "incomplete")
    assert told[-1]["type"] == f"response.{expected}"
    assert (final["completed_at"] is None) == (final["status"] != "completed")
    assert final["top_p"] == 0.5
    if end == "length":
        assert final["incomplete_details"] == {"reason": "max_output_tokens"}
    if end == "fail":
        assert told[-2]["type"] == "error"
        assert told[-2]["message"] == told[-2]["error"]["message"] == "it broke"


def test_an_answer_of_nothing_is_an_empty_message() -> None:
    told = climb([], LadderOptions(), "stop")
    (item,) = told[-1]["response"]["output"]
    assert item["content"] == [
        {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    ]


def test_thinking_cut_by_the_limit_has_no_empty_message() -> None:
    told = climb([ReasoningDelta("hm")], LadderOptions(), "length")
    (item,) = told[-1]["response"]["output"]
    assert (item["type"], item["status"]) == ("reasoning", "incomplete")


def test_max_tool_calls_keeps_the_stream_and_the_object_alike() -> None:
    events: list[GenerationEvent] = []
    for index in range(3):
        events += [ToolCallStarted(index, f"call_{index}", "f"), ToolCallDone(index)]
    told = climb(events, LadderOptions(max_tool_calls=1), "stop")
    assert [item["call_id"] for item in told[-1]["response"]["output"]] == ["call_0"]
