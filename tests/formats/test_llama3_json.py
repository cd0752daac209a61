"""What the llama3_json format makes of answers."""

from __future__ import annotations

from pegboard_contracts.conversation import Tool
from pegboard_contracts.testing.formats import (
    ToolFormatLaws,
    Transcript,
    calls_of,
    counted_ids,
    read,
    text_of,
)
from pegboard_tool_formats.llama3_json import Llama3Json

_ADD = Tool(name="add")


class TestLlama3Json(ToolFormatLaws):
    """The laws, on answers as Llama 3 models write them."""

    plugin = Llama3Json
    templates = (
        (
            "<|start_header_id|>system<|end_header_id|>\n\n"
            'Respond in the format {"name": function name, "parameters": dictionary}.'
        ),
    )
    transcripts = (
        Transcript(
            '{"name": "weather", "parameters": {"city": "Oslo", "note": "wind > 5 & rain"}}',
            calls=(("weather", {"city": "Oslo", "note": "wind > 5 & rain"}),),
        ),
        Transcript(
            '<|python_tag|>{"type": "function", "name": "add", "parameters": {"a": "1", "b": 2}}',
            calls=(("add", {"a": "1", "b": 2}),),
        ),
        Transcript(
            '\n\n{"name": "add", "parameters": {"a": 1}}; {"name": "now", "parameters": {}}',
            calls=(("add", {"a": 1}), ("now", {})),
        ),
        Transcript(
            '[{"name": "add", "parameters": {"a": 1}}, {"name": "now", "parameters": {}}] there',
            text=" there",
            calls=(("add", {"a": 1}), ("now", {})),
        ),
        Transcript(
            'Looking it up. <|python_tag|>{"name": "say", "parameters": {"t": "<|python_tag|>{"}}',
            text="Looking it up. ",
            calls=(("say", {"t": "<|python_tag|>{"}),),
        ),
        Transcript('{"answer": "no call", "n": [1]}', text='{"answer": "no call", "n": [1]}'),
        Transcript(
            'Sure: {"name": "add", "parameters": {}}',
            text='Sure: {"name": "add", "parameters": {}}',
            tools=(_ADD,),
        ),
        Transcript("<|python_tag|>print(1)", text="<|python_tag|>print(1)", tools=(_ADD,)),
        Transcript('{"name": "add", "parameters": {"a": ', calls=(("add", {}),), complete=False),
    )


def test_c15_only_a_declared_name_is_a_call() -> None:
    answer = '{"name":"delete_everything","parameters":{}}'
    events = read(Llama3Json().reader([_ADD], counted_ids()), list(answer))
    assert text_of(events) == answer
    assert not calls_of(events)
