"""What the think_tags format makes of answers."""

from __future__ import annotations

import json

import pytest
from pegboard_contracts.conversation import Tool
from pegboard_contracts.testing.formats import (
    ReasoningFormatLaws,
    Transcript,
    calls_of,
    counted_ids,
    read,
    reasoning_of,
    text_of,
)
from pegboard_reasoning_formats.think_tags import ThinkTags
from pegboard_tool_formats.hermes import Hermes


class TestThinkTags(ReasoningFormatLaws):
    """The laws, on answers as Qwen and DeepSeek models write them."""

    plugin = ThinkTags
    templates = ("{{ '<think>\\n' }}", "{% set content = content.split('</think>')[-1] %}")
    prompts_that_open = ("<|im_start|>assistant\n<think>\n", "Assistant: <think>")
    transcripts = (
        Transcript(
            "<think>\nTwo and two.\n</think>\n\nFour.", text="Four.", reasoning="Two and two."
        ),
        Transcript(
            "Two and two.\n</think>\n\nFour.", text="Four.", reasoning="Two and two.", opened=True
        ),
        Transcript("<think>a</think>one<think>b\nc</think> two", text="one two", reasoning="ab\nc"),
        Transcript("<think>\n\n</think>\n\nFour.\n", text="Four.\n"),
        Transcript("<think>never closed </thin", reasoning="never closed </thin"),
        Transcript("never\nclosed\n\n", reasoning="never\nclosed\n\n", opened=True),
        Transcript("  a < b, x</y and <thin air", text="  a < b, x</y and <thin air"),
        Transcript(
            "the tags `<think>` and `</think>` mark it",
            text="the tags `<think>` and `</think>` mark it",
        ),
        Transcript("<think><think>twice</think>once</think>", text="once", reasoning="twice"),
        Transcript(
            '<think>x</think>\n<tool_call>\n{"t": "a\n<think>b</think>"}\n</tool_call>',
            text='<tool_call>\n{"t": "a\n<think>b</think>"}\n</tool_call>',
            reasoning="x",
        ),
        Transcript(
            '<think>x</think>[TOOL_CALLS]put[ARGS]{"t": ">\n<think>b</think>"}',
            text='[TOOL_CALLS]put[ARGS]{"t": ">\n<think>b</think>"}',
            reasoning="x",
        ),
    )


def _answer(text: str) -> tuple[str, str, list[tuple[str, object]]]:
    reasoned = read(ThinkTags().reader(opened=False), list(text))
    tools = [Tool(name=name) for name in ("rm", "ls", "put")]
    called = read(Hermes().reader(tools, counted_ids()), [text_of(reasoned)])
    calls = [(call.name, json.loads(call.arguments)) for call in calls_of(called)]
    return reasoning_of(reasoned), text_of(called), calls


def test_c18_a_rehearsed_call_is_reasoning() -> None:
    rehearsed = '<tool_call>{"name":"rm","arguments":{"p":"/"}}</tool_call>'
    real = '<tool_call>{"name":"ls","arguments":{"p":"."}}</tool_call>'
    reasoning, text, calls = _answer(f"<think>maybe {rehearsed} no</think>{real}")
    assert reasoning == f"maybe {rehearsed} no"
    assert (text, calls) == ("", [("ls", {"p": "."})])


def test_c18_markup_inside_an_argument_is_an_argument() -> None:
    call = '<tool_call>{"name":"put","arguments":{"t":"<think>x</think>"}}</tool_call>'
    assert _answer(f"<think>a</think>{call}") == ("a", "", [("put", {"t": "<think>x</think>"})])


REAL = '<tool_call>{"name":"ls","arguments":{"p":"."}}</tool_call>'


def _opened(text: str, **settings: bool) -> tuple[str, str, list[str]]:
    made = ThinkTags()
    made.configure(ThinkTags.Settings(**settings))
    reasoned = read(made.reader(opened=True), list(text))
    called = read(Hermes().reader([Tool(name="ls")], counted_ids()), [text_of(reasoned)])
    return reasoning_of(reasoned), text_of(called), [call.arguments for call in calls_of(called)]


@pytest.mark.parametrize("calls", [REAL, f"{REAL}\n{REAL}\n"], ids=["one", "two"])
def test_c18_calls_at_the_end_of_an_open_block_are_meant(calls: str) -> None:
    assert _opened(f"need it {calls}") == ("need it", "", ['{"p":"."}'] * calls.count(REAL))
    assert _opened(f"need it {calls}", calls_in_open_blocks=False)[2] == []


def test_c18_a_call_that_thinking_goes_on_behind_is_a_rehearsal() -> None:
    assert _opened(f"a {REAL} b") == (f"a {REAL} b", "", [])
    assert _opened(f"a {REAL} b {REAL}") == (f"a {REAL} b", "", ['{"p":"."}'])
    assert _opened("need <tool_call>{half") == ("need <tool_call>{half", "", [])


def test_c18_a_block_that_names_the_tag_is_closed_by_its_own() -> None:
    assert _opened("a <tool_call> tag</think>\n\nDone.") == ("a <tool_call> tag", "Done.", [])
    assert _opened(f"a {REAL}</think>{REAL}") == (f"a {REAL}", "", ['{"p":"."}'])


def test_c30_what_was_held_back_goes_through_the_reader() -> None:
    reader = ThinkTags().reader(opened=True)
    events = [event for piece in ("answer</thi", "nk>do", "ne") for event in reader.feed(piece)]
    events += reader.finish()
    assert (reasoning_of(events), text_of(events)) == ("answer", "done")


def test_a_closing_tag_alone_vanishes() -> None:
    events = read(ThinkTags().reader(opened=False), list("I think so.</think> Yes."))
    assert text_of(events) == "I think so. Yes."
