"""What the formats of Mistral models make of answers."""

from __future__ import annotations

from pegboard_contracts.conversation import Tool
from pegboard_contracts.formats import new_call_id, short_call_id
from pegboard_contracts.testing.formats import ToolFormatLaws, Transcript, calls_of, read
from pegboard_tool_formats.mistral import Mistral
from pegboard_tool_formats.mistral_nemo import MistralNemo

_ADD = Tool(name="add")


class TestMistral(ToolFormatLaws):
    """The laws, on answers as Mistral Small 3 and Devstral write them."""

    plugin = Mistral
    templates = ("{{ '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}",)
    transcripts = (
        Transcript(
            '[TOOL_CALLS]weather[ARGS]{"city": "Oslo", "days": 3, "units": "metric"}',
            calls=(("weather", {"city": "Oslo", "days": 3, "units": "metric"}),),
        ),
        Transcript(
            'Both at once.[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]now[ARGS]{}',
            text="Both at once.",
            calls=(("add", {"a": 1}), ("now", {})),
        ),
        Transcript(
            '[TOOL_CALLS]add[CALL_ID]a1b2c3d4e[ARGS]{"a": {"b": [1, "[TOOL_CALLS]"]}} Then this.',
            text=" Then this.",
            calls=(("add", {"a": {"b": [1, "[TOOL_CALLS]"]}}),),
        ),
        Transcript('[TOOL_CALLS]functions.add{"a": 1}', calls=(("add", {"a": 1}),), tools=(_ADD,)),
        Transcript(
            '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]', calls=(("add", {"a": 1}),)
        ),
        Transcript(
            'See x[0] and [TOOL_CALLS]nobody[ARGS]{"a": "[TOOL_CALLS]add[ARGS]{}"} here.',
            text='See x[0] and [TOOL_CALLS]nobody[ARGS]{"a": "[TOOL_CALLS]add[ARGS]{}"} here.',
            tools=(_ADD,),
        ),
        Transcript("[TOOL_CALLS]add[ARGS]oops", text="[TOOL_CALLS]add[ARGS]oops", tools=(_ADD,)),
        Transcript('[TOOL_CALLS]add[ARGS]{"a": "x', calls=(("add", {}),), complete=False),
    )


class TestMistralNemo(ToolFormatLaws):
    """The laws, on answers as Mistral Nemo writes them."""

    plugin = MistralNemo
    templates = ("{{ '[TOOL_CALLS] [' }}{{ call.function | tojson }}",)
    transcripts = (
        Transcript(
            '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}]',
            calls=(("weather", {"city": "Oslo", "days": 3}),),
        ),
        Transcript(
            '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}, "id": "a1b2c3d4e"}, '
            '{"name": "now", "arguments": {}, "id": "b1b2c3d4e"}] and so on',
            text=" and so on",
            calls=(("add", {"a": 1}), ("now", {})),
        ),
        Transcript(
            'One moment.\n[TOOL_CALLS] [{"arguments": {"t": "}] [TOOL_CALLS] [{"}, "name": "say"}]',
            text="One moment.\n",
            calls=(("say", {"t": "}] [TOOL_CALLS] [{"}),),
        ),
        Transcript('[TOOL_CALLS] {"name": "now"}', calls=(("now", {}),)),
        Transcript(
            '[TOOL_CALLS] [{"name": "nobody", "arguments": {}}]',
            text='[TOOL_CALLS] [{"name": "nobody", "arguments": {}}]',
            tools=(_ADD,),
        ),
        Transcript("[TOOL_CALLS] [1, 2]", text="[TOOL_CALLS] [1, 2]", tools=(_ADD,)),
        Transcript(
            '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name": "add", "argum',
            calls=(("add", {"a": 1}), ("add", {})),
            complete=False,
        ),
    )


def test_c12_call_ids_are_nine_letters_and_digits() -> None:
    for made in (Mistral(), MistralNemo()):
        answer = '[TOOL_CALLS] [{"name": "add"}, {"name": "add"}]'
        calls = calls_of(read(made.reader([_ADD], new_call_id), [answer]))
        assert [len(call.call_id) for call in calls] == [9, 9]
        assert all(call.call_id.isalnum() for call in calls)
        assert calls[0].call_id != calls[1].call_id


def test_c12_foreign_ids_map_to_short_ones_without_collision() -> None:
    short = short_call_id("call_0123456789abcdef")
    assert short == short_call_id("call_0123456789abcdef") == short_call_id(short)
    assert len(short) == 9
    assert short.isalnum()
    ids = [f"call_0123456789abcdef{number}" for number in range(20_000)]
    assert len({short_call_id(call_id) for call_id in ids}) == len(ids)
