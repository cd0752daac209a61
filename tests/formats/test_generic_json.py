"""What the generic_json format makes of answers, and what it tells a model."""

from __future__ import annotations

import json

from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.testing.formats import (
    ToolFormatLaws,
    Transcript,
    calls_of,
    counted_ids,
    read,
    text_of,
)
from pegboard_tool_formats.generic_json import GenericJson

_ADD = Tool(name="add")
_RECORD = 'Here is a record:\n```json\n{"name":"Alice","arguments":{"x":1}}\n```\n'
_PYTHON = 'Call it so:\n```python\n{"name": "add", "arguments": {}}\n```\nDone.'
_ANSWER = '{"answer": 42, "steps": [\n{"name": "add", "arguments": {}}\n]}'


class TestGenericJson(ToolFormatLaws):
    """The laws, on answers as small instructed models write them."""

    plugin = GenericJson
    transcripts = (
        Transcript(
            '{"name": "weather", "arguments": {"city": "Oslo", "days": 3, "units": "metric"}}',
            calls=(("weather", {"city": "Oslo", "days": 3, "units": "metric"}),),
        ),
        Transcript(
            'I will add them.\n{"name": "add", "arguments": {"a": 1, "b": 2}}\nThat is all.',
            text="I will add them.\n\nThat is all.",
            calls=(("add", {"a": 1, "b": 2}),),
        ),
        Transcript(
            '```json\n{"name": "add", "arguments": {"text": "```"}}\n```\nDone.',
            text="\nDone.",
            calls=(("add", {"text": "```"}),),
        ),
        Transcript(
            '[\n  {"name": "add", "arguments": {"a": 1}},\n  {"name": "now", "arguments": {}}\n]',
            calls=(("add", {"a": 1}), ("now", {})),
        ),
        Transcript(
            '{"name": "add", "arguments": {"a": 1}}\n{"type": "function", "name": "functions.now", '
            '"parameters": {"zone": "UTC"}}\n',
            calls=(("add", {"a": 1}), ("now", {"zone": "UTC"})),
        ),
        Transcript(_RECORD, text=_RECORD, tools=(_ADD,)),
        Transcript(_PYTHON, text=_PYTHON, tools=(_ADD,)),
        Transcript(_ANSWER, text=_ANSWER, tools=(_ADD,)),
        Transcript('{"name": "add", "argu', text='{"name": "add", "argu', tools=(_ADD,)),
        Transcript(
            '{"name": "add", "arguments": {"a": [1, 2',
            calls=(("add", {}),),
            complete=False,
        ),
    )


def test_c15_json_answers_are_no_calls() -> None:
    for answer in (_RECORD, _ANSWER, '{"name":"add","age":3}', "[1, 2, 3]"):
        events = read(GenericJson().reader([_ADD], counted_ids()), list(answer))
        assert text_of(events) == answer
        assert not calls_of(events)


def test_an_object_within_a_line_is_no_call() -> None:
    answer = 'Write {"name": "add", "arguments": {}} to add.'
    assert text_of(read(GenericJson().reader([_ADD], counted_ids()), list(answer))) == answer


def test_instructions_name_the_tools_that_may_be_called() -> None:
    tools = [_ADD, Tool(name="now", description="Tell the time", parameters={"type": "object"})]
    told = GenericJson().instructions(tools, ToolChoice())
    assert told
    lines = [json.loads(line) for line in told.splitlines() if line.startswith('{"name": "n')]
    assert lines == [
        {"name": "now", "description": "Tell the time", "parameters": {"type": "object"}}
    ]
    named = GenericJson().instructions(tools, ToolChoice(mode="required", names=("now",)))
    assert named
    assert '"add"' not in named
    assert "must" in named
    assert GenericJson().instructions(tools, ToolChoice(mode="none")) is None
    assert GenericJson().instructions([], ToolChoice()) is None
