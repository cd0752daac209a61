"""Text typed by a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_contracts.conversation import Tool
from pegboard_contracts.typed_text import TypedText, argument_names, argument_types

_TYPES = ("string", "integer", "number", "boolean", "null", "object", "array")


def _typed(text: str, *types: str, pieces: list[str] | None = None) -> str:
    fragments: list[str] = []
    value = TypedText(frozenset(types), fragments.append)
    for piece in [text] if pieces is None else pieces:
        value.feed(piece)
    value.finish()
    return "".join(fragments)


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("12", ["string"], "12"),
        ("12", ["integer"], 12),
        ("12.5", ["integer"], "12.5"),
        ("1e2", ["integer"], 100.0),
        ("12.5", ["number", "null"], 12.5),
        ("null", ["string", "null"], None),
        ("nullable", ["string", "null"], "nullable"),
        ("007", ["integer"], "007"),
        ("True", ["boolean"], True),
        ("None", ["null"], None),
        ("Truth", ["boolean"], "Truth"),
        (' {"a": [1]} \n', ["object"], {"a": [1]}),
        ('{"a": ', ["object"], '{"a": '),
        ("[1]", ["object"], "[1]"),
        ('"quoted"', ["string"], '"quoted"'),
        ('"quoted"', [], "quoted"),
        ("plain\n\n", [], "plain\n"),
        ("", [], ""),
        ("12 pegs", [], "12 pegs"),
    ],
)
def test_text_becomes_what_its_types_allow(text: str, types: list[str], value: object) -> None:
    assert json.loads(_typed(text, *types)) == value
    assert json.loads(_typed(text, *types, pieces=list(text))) == value


@given(st.text(alphabet='{}[]":,0.1-etrufalsnTN \n', max_size=20), st.sets(st.sampled_from(_TYPES)))
def test_any_text_becomes_json_however_it_is_cut(text: str, types: set[str]) -> None:
    whole = _typed(text, *types)
    assert _typed(text, *types, pieces=list(text)) == whole
    json.loads(whole)


def test_a_string_streams_as_soon_as_it_is_one() -> None:
    fragments: list[str] = []
    value = TypedText(frozenset(), fragments.append)
    value.feed("12")
    assert fragments == []
    value.feed(" pegs")
    value.feed(" here")
    assert fragments == ['"12 pegs', " here"]


def _types(schema: Any, **root: Any) -> set[str]:
    tool = Tool(name="f", parameters={"properties": {"a": schema}, **root})
    return set(argument_types(tool, "a"))


def test_types_are_found_where_schemas_hide_them() -> None:
    assert _types({"type": ["string", "null"]}) == {"string", "null"}
    assert _types({"type": "string", "nullable": True}) == {"string", "null"}
    assert _types({"enum": ["a", 1, None]}) == {"string", "integer", "null"}
    assert _types({"const": 1.5}) == {"number"}
    assert _types({"anyOf": [{"type": "string"}, {"type": "null"}]}) == {"string", "null"}
    assert _types({"anyOf": [{"type": "string"}, {}]}) == set()
    assert _types({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}) == {"string"}
    assert _types({"$ref": "#/$defs/w~1x"}, **{"$defs": {"w/x": {"type": "array"}}}) == {"array"}


@pytest.mark.parametrize(
    "schema",
    [None, True, 1, {"$ref": "#/properties/a"}, {"$ref": "http://x"}, {"anyOf": 1}, {"enum": []}],
)
def test_a_schema_that_tells_nothing_tells_nothing(schema: object) -> None:
    assert _types(schema) == set()


def test_names_are_those_of_the_properties() -> None:
    assert argument_names(Tool(name="f")) == frozenset()
    tool = Tool(
        name="f", parameters={"$ref": "#/$defs/f", "$defs": {"f": {"properties": {"a": {}}}}}
    )
    assert argument_names(tool) == {"a"}
