"""What the qwen3_coder format makes of answers."""

from __future__ import annotations

import json
from typing import Any

from pegboard_contracts.conversation import Tool
from pegboard_contracts.events import ToolArgumentsDelta
from pegboard_contracts.testing.formats import (
    ToolFormatLaws,
    Transcript,
    calls_of,
    counted_ids,
    cuts,
    read,
    text_of,
)
from pegboard_tool_formats.qwen3_coder import Qwen3Coder

_PUT = Tool(name="put")
_UNKNOWN = "<tool_call>\n<function=nobody>\n<parameter=a>\n<tool_call>\n</parameter>\n</function>"


def _typed(name: str, **properties: object) -> Tool:
    return Tool(name=name, parameters={"type": "object", "properties": properties})


class TestQwen3Coder(ToolFormatLaws):
    """The laws, on answers as Qwen3-Coder and later models write them."""

    plugin = Qwen3Coder
    templates = ("<tool_call>\n<function=example>\n<parameter=one>\nvalue\n</parameter>",)
    transcripts = (
        Transcript(
            "I will write it.\n<tool_call>\n<function=write>\n<parameter=path>\nsrc/a.py\n"
            "</parameter>\n<parameter=text>\ndef f():\n    return 1\n\n</parameter>\n"
            "<parameter=mode>\n420\n</parameter>\n</function>\n</tool_call>",
            text="I will write it.\n",
            calls=(
                ("write", {"path": "src/a.py", "text": "def f():\n    return 1\n", "mode": 420}),
            ),
            tools=(
                _typed(
                    "write",
                    path={"type": "string"},
                    text={"type": "string"},
                    mode={"type": "integer"},
                ),
            ),
        ),
        Transcript(
            "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=add>\n"
            "<parameter=a>1</parameter><parameter=b>[2, 3]</parameter></function>\n</tool_call>"
            "\nSo.",
            text="\nSo.",
            calls=(("now", {}), ("add", {"a": 1, "b": [2, 3]})),
        ),
        Transcript(
            "<function=add><parameter=a>{}</parameter></function> ok",
            text=" ok",
            calls=(("add", {"a": {}}),),
        ),
        Transcript(
            "<tool_call><function=note><parameter=body>end with </parameter> then </function> and "
            "</tool_call> or <parameter=x>\n</parameter></function></tool_call>",
            calls=(
                (
                    "note",
                    {
                        "body": "end with </parameter> then </function> and "
                        "</tool_call> or <parameter=x>"
                    },
                ),
            ),
        ),
        Transcript(
            "<tool_call>\n<function=note>\n<parameter=body>\nWrite:\n<tool_call>\n<function=now>\n"
            "<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\n</parameter>\n</function>\n"
            "</tool_call>",
            calls=(
                (
                    "note",
                    {
                        "body": "Write:\n<tool_call>\n<function=now>\n<parameter=a>\n1\n"
                        "</parameter>\n</function>\n</tool_call>"
                    },
                ),
            ),
        ),
        Transcript(_UNKNOWN, text=_UNKNOWN, tools=(_PUT,)),
        Transcript(
            '<tool_call>\n{"name": "put", "arguments": {}}\n</tool_call> a<b',
            text='<tool_call>\n{"name": "put", "arguments": {}}\n</tool_call> a<b',
            tools=(_PUT,),
        ),
        Transcript(
            "<tool_call>\n<function=put>\n<parameter=text>\nhalf a li",
            calls=(("put", {}),),
            complete=False,
        ),
    )


def _arguments(answer: str, tool: Tool) -> list[Any]:
    results: list[list[Any]] = []
    for pieces in cuts(answer):
        events = read(Qwen3Coder().reader([tool, Tool(name="now")], counted_ids()), pieces)
        assert text_of(events).strip() == ""
        calls = calls_of(events)
        assert all(call.complete for call in calls)
        results.append([json.loads(call.arguments) for call in calls])
    assert all(result == results[0] for result in results)
    return results[0]


def test_c09_damaged_tags_are_mended() -> None:
    answer = (
        "<tool_call><function=put><parameter=path\n/tmp/a</parameter><parameter=text>line1\nline2\n"
        "<parameter=mode>w</parameter></function></tool_call>\n"
        "<tool_call><function=now></function></tool_call>"
    )
    put = {"path": "/tmp/a", "text": "line1\nline2", "mode": "w"}  # noqa: S108 - no file
    assert _arguments(answer, _PUT) == [put, {}]


def test_c09_a_missing_function_end_is_mended() -> None:
    answer = "<tool_call><function=put><parameter=a>x</parameter></tool_call>"
    assert _arguments(answer, _PUT) == [{"a": "x"}]
    answer = "<tool_call><function=put><parameter=a>x\n</function></tool_call>"
    assert _arguments(answer, _PUT) == [{"a": "x"}]


def test_c09_a_hopeless_call_spares_the_next() -> None:
    good = "<tool_call><function=now></function></tool_call>"
    answer = f"<tool_call><function=put> what is this? {good}{good}"
    events = read(Qwen3Coder().reader([_PUT, Tool(name="now")], counted_ids()), list(answer))
    assert [(call.name, call.complete) for call in calls_of(events)] == [
        ("put", False),
        ("now", True),
        ("now", True),
    ]
    assert text_of(events) == ""


def test_c10_markup_and_blanks_inside_a_value_stay() -> None:
    value = '    if (a < b && c > d) { x = "<p>&amp;</p>"; }\n\ttab\n'
    answer = (
        f"<tool_call><function=put><parameter=text>\n{value}\n</parameter></function></tool_call>"
    )
    assert _arguments(answer, _PUT) == [{"text": value}]


def test_c11_values_are_typed_by_the_schema() -> None:
    tool = _typed(
        "f",
        loc={"anyOf": [{"type": "object"}, {"type": "null"}]},
        day={"type": "integer"},
        id={"type": "string"},
        on={"type": "boolean"},
        raw={},
    )
    answer = (
        '<tool_call><function=f><parameter=loc>{"city":"Oslo"}</parameter>'
        "<parameter=day>2026-01-15</parameter><parameter=id>007</parameter>"
        "<parameter=on>True</parameter><parameter=raw>12</parameter></function></tool_call>"
    )
    assert _arguments(answer, tool) == [
        {"loc": {"city": "Oslo"}, "day": "2026-01-15", "id": "007", "on": True, "raw": 12}
    ]


def test_c11_a_referenced_type_is_followed() -> None:
    tool = Tool(
        name="f",
        parameters={
            "$defs": {"word": {"type": "string"}, "level": {"enum": [1, 2, None]}},
            "properties": {"w": {"$ref": "#/$defs/word"}, "l": {"$ref": "#/$defs/level"}},
        },
    )
    answer = (
        "<function=f><parameter=w>12</parameter><parameter=l>2</parameter>"
        "<parameter=m>null</parameter></function>"
    )
    assert _arguments(answer, tool) == [{"w": "12", "l": 2, "m": None}]


def test_a_long_string_streams_and_a_number_waits() -> None:
    tool = _typed("put", text={"type": "string"}, n={"type": "integer"})
    reader = Qwen3Coder().reader([tool], counted_ids())
    reader.feed("<function=put><parameter=text>a")
    assert reader.feed("bc") == [ToolArgumentsDelta(0, "bc")]
    reader.feed("</parameter><parameter=n>1")
    assert reader.feed("2") == []
    rest = "".join(
        event.text
        for event in reader.feed("</parameter></function>")
        if isinstance(event, ToolArgumentsDelta)
    )
    assert rest == "12}"
