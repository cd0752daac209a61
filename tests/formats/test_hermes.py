"""What the hermes format makes of answers."""

from __future__ import annotations

import json

import pytest
from pegboard_contracts.conversation import Tool
from pegboard_contracts.testing.formats import (
    ToolFormatLaws,
    Transcript,
    calls_of,
    counted_ids,
    cuts,
    read,
    text_of,
)
from pegboard_tool_formats.hermes import Hermes

_ADD = Tool(name="add")


class TestHermes(ToolFormatLaws):
    """The laws, on answers as Qwen and Hermes models write them."""

    plugin = Hermes
    templates = ('<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}',)
    transcripts = (
        Transcript(
            '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}\n'
            "</tool_call>",
            calls=(("weather", {"city": "Oslo", "days": 3}),),
        ),
        Transcript(
            "Let me look that up.\n\n"
            '<tool_call>\n{"name": "search", "arguments": {"query": "pegs", "limit": 5}}\n'
            "</tool_call>\n"
            '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'
            "Both are on their way.",
            text="Let me look that up.\n\n\nBoth are on their way.",
            calls=(("search", {"query": "pegs", "limit": 5}), ("now", {})),
        ),
        Transcript(
            '<tool_call>{"arguments": {"path": "/tmp/a", '
            '"text": "def f():\\n\\treturn \\"x\\"\\n", '
            '"lines": [1, 2, {"deep": [null, true, -1.5e3]}]}, "name": "write"}</tool_call>',
            calls=(
                (
                    "write",
                    {
                        "path": "/tmp/a",  # noqa: S108 - an argument, not a file
                        "text": 'def f():\n\treturn "x"\n',
                        "lines": [1, 2, {"deep": [None, True, -1500.0]}],
                    },
                ),
            ),
        ),
        Transcript(
            '<tool_call>\n{"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": \\"two\\"}"}\n'
            "</tool_call>",
            calls=(("add", {"a": 1, "b": "two"}),),
        ),
        Transcript(
            '<tool_call>\n{"name": "functions.add", "parameters": {"a": 1}}\n'
            '{"name": "add", "arguments": null}\n</tool_call> done',
            text=" done",
            calls=(("add", {"a": 1}), ("add", {})),
            tools=(_ADD,),
        ),
        Transcript(
            'a < b and x | y <tool_call>{"name": "nobody", "arguments": {}}</tool_call> <tool',
            text='a < b and x | y <tool_call>{"name": "nobody", "arguments": {}}</tool_call> <tool',
            tools=(_ADD,),
        ),
        Transcript(
            '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "tw',
            calls=(("add", {}),),
            complete=False,
        ),
        Transcript(
            '<tool_call>{"name": "say", "arguments": {"text": "one\ntwo\tthree", '
            '"it": "it\\\'s"}}}\n'
            "</tool_call>",
            calls=(("say", {"text": "one\ntwo\tthree", "it": "it's"}),),
        ),
    )


def _calls(answer: str, *names: str) -> list[tuple[str, object]]:
    reader = Hermes().reader([Tool(name=name) for name in names], counted_ids())
    calls = calls_of(read(reader, list(answer)))
    return [(call.name, json.loads(call.arguments)) for call in calls if call.complete]


def test_c01_closing_tag_inside_argument() -> None:
    body = "docs: end with </tool_call> then <tool_call> again"
    arguments = json.dumps({"body": body, "n": 1})
    answer = '<tool_call>\n{"name":"save_note","arguments":' + arguments + "}\n</tool_call>"
    for pieces in cuts(answer):
        events = read(Hermes().reader([Tool(name="save_note")], counted_ids()), pieces)
        (call,) = calls_of(events)
        assert json.loads(call.arguments) == {"body": body, "n": 1}
        assert text_of(events) == ""


@pytest.mark.parametrize(
    "pieces",
    [
        ['<tool_call>{"name":"search","argum', 'ents":{"query":"1+', '1"}}</tool_call>'],
        ['<tool_call>{"name":"search","arguments":{"query":"1+1"}}</tool_call>'],
        ['<tool_call>{"name":"search","arguments":{"query":"1+1"}', "}</tool", "_call>"],
    ],
)
def test_c04_last_brace_shares_a_piece_with_the_end_tag(pieces: list[str]) -> None:
    events = read(Hermes().reader([Tool(name="search")], counted_ids()), pieces)
    (call,) = calls_of(events)
    assert json.loads(call.arguments) == {"query": "1+1"}
    assert text_of(events) == ""


def test_c06_three_calls_then_words_at_every_cut() -> None:
    answer = "".join(
        f'<tool_call>\n{{"name": "f{n}", "arguments": {{"n": {n}}}}}\n</tool_call>\n'
        for n in range(3)
    )
    tools = [Tool(name=f"f{n}") for n in range(3)]
    for pieces in cuts(answer + "ok done"):
        events = read(Hermes().reader(tools, counted_ids()), pieces)
        calls = [(call.name, json.loads(call.arguments)) for call in calls_of(events)]
        assert calls == [("f0", {"n": 0}), ("f1", {"n": 1}), ("f2", {"n": 2})]
        assert text_of(events).strip() == "ok done"


def test_c15_json_answers_are_no_calls() -> None:
    answer = 'Here is a record:\n```json\n{"name":"Alice","arguments":{"x":1}}\n```\n'
    events = read(Hermes().reader([_ADD], counted_ids()), list(answer))
    assert text_of(events) == answer
    assert not calls_of(events)


def test_c21_arguments_beyond_ascii() -> None:
    text = '{"q":"São Paulo 東京 😀 \\u00e9 \\ud83d\\ude00 \\ud83d!"}'
    answer = f'<tool_call>{{"name":"say","arguments":{text}}}</tool_call>'
    assert _calls(answer, "say") == [("say", {"q": "São Paulo 東京 😀 é 😀 \ufffd!"})]


def test_c23_a_call_cut_short_is_not_complete() -> None:
    answer = '<tool_call>{"name":"add","arguments":{"a": 12'
    (call,) = calls_of(read(Hermes().reader([_ADD], counted_ids()), list(answer)))
    assert call.complete is False


def test_one_broken_call_spares_its_neighbours() -> None:
    good = '<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>'
    broken = '<tool_call>{"name":"add","arguments":{"a":oops}}</tool_call>'
    events = read(Hermes().reader([_ADD], counted_ids()), list(good + broken + good))
    assert [call.complete for call in calls_of(events)] == [True, False, True]
    assert text_of(events) == ""


def test_a_tag_in_prose_is_prose() -> None:
    answer = "Write <tool_call> first, then <tool_call>\nnothing."
    assert text_of(read(Hermes().reader([_ADD], counted_ids()), list(answer))) == answer
