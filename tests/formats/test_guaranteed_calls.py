"""What the formats' grammars allow is a call, and its arguments fit the tool's schema."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.errors import ApiError
from pegboard_contracts.formats import ToolFormat
from pegboard_contracts.grammar import literal
from pegboard_contracts.grammar.examples import GrammarReader
from pegboard_contracts.testing.formats import calls_of, counted_ids, read, text_of
from pegboard_tool_formats.generic_json import GenericJson
from pegboard_tool_formats.harmony import Harmony
from pegboard_tool_formats.hermes import Hermes
from pegboard_tool_formats.llama3_json import Llama3Json
from pegboard_tool_formats.mistral import Mistral
from pegboard_tool_formats.mistral_nemo import MistralNemo
from pegboard_tool_formats.phi4 import Phi4
from pegboard_tool_formats.qwen3_coder import Qwen3Coder

Schema = dict[str, Any]

FORMATS: tuple[ToolFormat, ...] = (
    GenericJson(),
    Harmony(),
    Hermes(),
    Llama3Json(),
    Mistral(),
    MistralNemo(),
    Phi4(),
    Qwen3Coder(),
)
MARKED = tuple(made for made in FORMATS if not isinstance(made, GenericJson | Llama3Json))
REQUIRED = ToolChoice(mode="required")

SCHEMAS: dict[str, Schema | None] = {
    "nothing": None,
    "no_properties": {"type": "object", "properties": {}},
    "flat": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "unit": {"type": "string", "enum": ["metric", "imperial", "grüße"]},
            "exact": {"type": "boolean"},
        },
        "required": ["city", "unit"],
    },
    "nested": {
        "type": "object",
        "properties": {
            "who": {"$ref": "#/$defs/person"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
            "note": {"anyOf": [{"type": "string", "maxLength": 10}, {"type": "null"}]},
        },
        "required": ["who", "tags"],
        "$defs": {
            "person": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "born": {"type": "integer"}},
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    },
    "grüßen": {"type": "object", "properties": {"an": {"enum": ["français", "日本語"]}}},
    "strings": {
        "type": "object",
        "properties": {
            "day": {"type": "string", "format": "date"},
            "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$"},
            "short": {"type": "string", "minLength": 2, "maxLength": 5},
            "level": {"enum": ["low", 1, None]},
        },
        "required": ["day", "code", "short", "level"],
    },
}
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]])*\]|\w+| +')
TOOLS = tuple(Tool(name=name, parameters=schema) for name, schema in SCHEMAS.items())


def _pattern(grammar: str) -> re.Pattern[str]:
    """Write a grammar whose rules do not call themselves as one regular expression."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines() if line)

    def expand(match: re.Match[str]) -> str:
        token = match[0]
        if token[0] == '"':
            return f"(?:{re.escape(str(json.loads(token)))})"
        return f"(?:{_TOKEN.sub(expand, rules[token])})" if token in rules else token.strip()

    return re.compile(_TOKEN.sub(expand, rules["root"]))


def _check(made: ToolFormat, grammar: str, draws: random.Random, most: int) -> None:
    answer = GrammarReader(grammar).draw(draws)
    events = read(made.reader(TOOLS, counted_ids()), list(answer))
    calls = calls_of(events)
    assert text_of(events) == "", answer
    assert 1 <= len(calls) <= most
    for call in calls:
        assert call.complete, answer
        schema = SCHEMAS[call.name] or {"type": "object"}
        arguments = json.loads(call.arguments)
        jsonschema.validate(arguments, schema, jsonschema.Draft202012Validator)
        assert SCHEMAS[call.name] or arguments == {}


@pytest.mark.parametrize("made", FORMATS, ids=lambda made: type(made).__name__)
@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.booleans())
def test_what_a_forced_choice_allows_is_calls(
    made: ToolFormat, draws: random.Random, parallel: bool
) -> None:
    constraint = made.constraint(TOOLS, REQUIRED, parallel=parallel)
    assert constraint
    assert constraint.kind == "ebnf"
    _check(made, constraint.value, draws, 4 if parallel else 1)


@pytest.mark.parametrize("made", FORMATS, ids=lambda made: type(made).__name__)
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_named_choice_is_one_call_of_that_tool(made: ToolFormat, tool: Tool) -> None:
    choice = ToolChoice(mode="required", names=(tool.name,))
    constraint = made.constraint(TOOLS, choice, parallel=True)
    assert constraint
    for seed in range(10):
        answer = GrammarReader(constraint.value).draw(random.Random(seed))  # noqa: S311 - a test
        calls = calls_of(read(made.reader(TOOLS, counted_ids()), [answer]))
        assert [call.name for call in calls] == [tool.name]


@pytest.mark.parametrize("made", MARKED, ids=lambda made: type(made).__name__)
def test_strict_tools_bind_from_the_opening_on(made: ToolFormat) -> None:
    tools = [msgspec.structs.replace(tool, strict=tool.name == "flat") for tool in TOOLS]
    constraint = made.constraint(tools, ToolChoice(), parallel=True)
    assert constraint
    assert constraint.kind == "structural_tag"
    form = json.loads(constraint.value)["format"]
    (trigger,), (tag,) = form["triggers"], form["tags"]
    assert tag["begin"].startswith(trigger)
    called: set[str] = set()
    for seed in range(40):
        content = GrammarReader(tag["content"]["grammar"]).draw(random.Random(seed))  # noqa: S311 - a test
        answer = "Well. " + tag["begin"] + content + tag["end"]
        events = read(made.reader(tools, counted_ids()), [answer])
        (call,) = calls_of(events)
        assert call.complete
        assert text_of(events) == "Well. "
        called.add(call.name)
    assert called == set(SCHEMAS)


@pytest.mark.parametrize("made", FORMATS, ids=lambda made: type(made).__name__)
def test_instructions_show_a_call_that_the_format_reads(made: ToolFormat) -> None:
    told = made.instructions(TOOLS, REQUIRED)
    assert told
    assert "must" in told
    shown = told.partition("arguments:\n\n")[2].rpartition("\n\n")[0]
    events = read(made.reader([Tool(name="function_name")], counted_ids()), [shown])
    (call,) = calls_of(events)
    assert call.complete
    assert "value" in call.arguments
    assert text_of(events) == ""


def test_a_literal_ends_before_a_digit_that_the_engine_would_swallow() -> None:
    assert literal("grüßen") == '("grüß" "en")'
    assert literal("grün an 日本語a") == '"grün an 日本語a"'


ODD_NAMES = (
    *("a b", " a ", "a\nb", "a.b", "functions.x", "ä", "日本", "{name}", "a>b", "a\\b", '"q"'),
    *("[ARGS]", "a[b", "a to=b", "x<|message|>", "<tool_call>", "</tool_call>", "</function>"),
)


def _guaranteed(made: ToolFormat, tool: Tool) -> Any:
    """Return the arguments that a forced call is read with, or the code of the refusal."""
    try:
        constraint = made.constraint([tool], REQUIRED, parallel=False)
    except ApiError as error:
        return error.code
    assert constraint is not None
    answer = GrammarReader(constraint.value).draw(random.Random(3))  # noqa: S311 - no secret
    [call] = calls_of(read(made.reader([tool], counted_ids()), list(answer)))
    assert (call.name, call.complete) == (tool.name, True)
    return json.loads(call.arguments)


@pytest.mark.parametrize("made", FORMATS, ids=lambda made: type(made).__name__)
def test_an_odd_name_is_called_or_refused(made: ToolFormat) -> None:
    schema = {"type": "object", "properties": {"p": {"const": 7}}, "required": ["p"]}
    for name in ODD_NAMES:
        found = _guaranteed(made, Tool(name=name, parameters=schema))
        assert found in ({"p": 7}, "name_not_enforceable"), name
    assert _guaranteed(made, Tool(name="a.b-c_1", parameters=schema)) == {"p": 7}


@pytest.mark.parametrize("made", FORMATS, ids=lambda made: type(made).__name__)
@pytest.mark.parametrize("required", [True, False])
def test_an_odd_property_is_written_left_out_or_refused(made: ToolFormat, required: bool) -> None:
    for name in ODD_NAMES:
        wanted = [name] if required else []
        schema = {"type": "object", "properties": {name: {"const": 7}}, "required": wanted}
        found = _guaranteed(made, Tool(name="f", parameters=schema))
        otherwise = "name_not_enforceable" if required else dict[str, int]()
        assert found in ({name: 7}, otherwise), name


@pytest.mark.parametrize("made", FORMATS, ids=lambda made: type(made).__name__)
def test_nothing_is_guaranteed_unasked(made: ToolFormat) -> None:
    assert made.constraint(TOOLS, ToolChoice(), parallel=True) is None
    assert made.constraint([], REQUIRED, parallel=True) is None


@pytest.mark.parametrize("made", FORMATS, ids=lambda made: type(made).__name__)
def test_what_cannot_be_guaranteed_is_refused_by_name(made: ToolFormat) -> None:
    odd: Schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    strict = Tool(name="odd", parameters=odd, strict=True)
    with pytest.raises(ApiError, match="uniqueItems") as refused:
        made.constraint([strict], REQUIRED, parallel=True)
    assert (refused.value.status, refused.value.param) == (400, "tools")
    loose = msgspec.structs.replace(strict, strict=False)
    assert made.constraint([loose], REQUIRED, parallel=True)
    broken = Tool(name="broken", parameters={"type": "object", "properties": {"a": False, "b": 3}})
    with pytest.raises(ApiError, match="'broken'"):
        made.constraint([broken], REQUIRED, parallel=True)


@pytest.mark.parametrize("made", [GenericJson(), Llama3Json()], ids=["generic", "llama3"])
@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.booleans())
def test_unmarked_calls_of_strict_tools_are_told_from_text(
    made: ToolFormat, draws: random.Random, parallel: bool
) -> None:
    tools = [msgspec.structs.replace(tool, strict=True) for tool in TOOLS]
    constraint = made.constraint(tools, ToolChoice(), parallel=parallel)
    assert constraint
    assert constraint.kind == "ebnf"
    answer = GrammarReader(constraint.value).draw(draws)
    calls = calls_of(read(made.reader(tools, counted_ids()), [answer]))
    assert parallel or len(calls) <= 1
    for call in calls:
        assert call.complete, answer
        jsonschema.validate(
            json.loads(call.arguments), SCHEMAS[call.name] or {}, jsonschema.Draft202012Validator
        )


@pytest.mark.parametrize(
    "answer",
    [
        "Hello there.\n\nA list [1]:\n- `one`\n",
        "```python\nprint({'a': `1`})\n```\nSo `x`.",
        '{"name": "nothing", "arguments": {}}',
        'Now:\n{"name": "nothing", "arguments": {}}',
        '{"name": "odd"}',
        "```json\n{}\n```",
        "  {",
    ],
)
def test_ordinary_answers_stay_allowed_beside_strict_tools(answer: str) -> None:
    constraint = GenericJson().constraint(
        [Tool(name="nothing", strict=True)], ToolChoice(), parallel=True
    )
    assert constraint
    allowed = answer not in {'{"name": "odd"}', "```json\n{}\n```", "  {"}
    assert bool(_pattern(constraint.value).fullmatch(answer)) is allowed
