"""What the grammar of a schema allows is valid for the schema."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pegboard_contracts.errors import ApiError
from pegboard_contracts.grammar import (
    GrammarBuilder,
    PatternError,
    SchemaTranslator,
    pattern_expression,
)
from pegboard_contracts.grammar.examples import GrammarReader

Schema = dict[str, Any]

NODE: Schema = {
    "type": "object",
    "properties": {
        "v": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
    },
    "required": ["v", "next"],
}
ENFORCED: list[Schema] = [
    {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": -5, "maximum": 120},
            "b": {"type": "string", "enum": ["x", 'y"z']},
            "c": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}},
        },
        "required": ["a", "c"],
        "additionalProperties": False,
    },
    {"type": "number", "minimum": -1.5, "maximum": 2.25},
    {"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 0.75},
    {"type": "integer", "exclusiveMinimum": 99, "maximum": 1001},
    {"type": "string", "pattern": r"^[a-z]{2,4}\d+$"},
    {"type": "string", "pattern": "b.d"},
    {"type": "string", "pattern": r'^"\\(x|é)[^a-z"]$'},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "email"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"$defs": {"node": NODE}, "$ref": "#/$defs/node"},
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer", "minimum": 3}}, "required": ["b"]},
        ]
    },
    {
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "minProperties": 1,
        "maxProperties": 3,
    },
    {
        "type": "object",
        "properties": {"abc": {"type": "integer"}, "abd": {"type": "integer"}},
        "additionalProperties": {"type": "string"},
    },
    {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "string"}],
        "minItems": 2,
        "items": False,
    },
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {
        "oneOf": [
            {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
            {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]},
        ]
    },
    {"type": ["string", "null"]},
    {"enum": [1, "a", None, True, {"x": [1]}]},
    {"const": "</tool_call>"},
    {},
    {"type": "object"},
    {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 100},
    {"type": "object", "properties": {k: {"type": "string"} for k in "abc"}},
    {
        "type": "object",
        "patternProperties": {"^x_[a-z]+$": {"type": "integer"}},
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "patternProperties": {"^x-": {}},
    },
    {"$ref": "#/$defs/a%20b", "$defs": {"a b": {"enum": [7]}}},
]


def draw(schema: object, seed: int, count: int = 40) -> tuple[list[str], list[str]]:
    builder = GrammarBuilder()
    translator = SchemaTranslator(builder, schema)
    grammar = GrammarReader(builder.text(translator.expression()))
    rng = random.Random(seed)  # noqa: S311 - drawing samples, no secrets
    return [grammar.draw(rng) for _ in range(count)], translator.unenforced


def validate(text: str, schema: Schema) -> None:
    jsonschema.validate(json.loads(text), schema, format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize("schema", ENFORCED, ids=lambda schema: json.dumps(schema)[:60])
def test_every_sample_is_valid(schema: Schema) -> None:
    samples, unenforced = draw(schema, 1, 150)
    assert unenforced == []
    for text in samples:
        validate(text, schema)


_DECIMALS = st.decimals(-2000, 2000, places=2).map(float)


@given(_DECIMALS, _DECIMALS, st.booleans(), st.booleans(), st.integers(0, 2**16))
def test_numbers_stay_within_bounds(
    low: float, high: float, open_low: bool, open_high: bool, seed: int
) -> None:
    low, high = sorted((low, high))
    schema = {
        "type": "number",
        "exclusiveMinimum" if open_low else "minimum": low,
        "exclusiveMaximum" if open_high else "maximum": high,
    }
    if low == high and (open_low or open_high):
        with pytest.raises(ApiError):
            draw(schema, seed)
        return
    for text in draw(schema, seed, 20)[0]:
        validate(text, schema)


@given(st.integers(-(10**6), 10**6), st.integers(0, 10**6), st.integers(0, 2**16))
def test_integers_stay_within_bounds(low: int, width: int, seed: int) -> None:
    for text in draw({"type": "integer", "minimum": low, "maximum": low + width}, seed, 20)[0]:
        assert low <= int(text) <= low + width


_SCALARS = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 0},
        {"type": "boolean"},
        {"enum": ["a", 1, None]},
        {"type": "number", "maximum": 3.5},
        {"type": "string", "maxLength": 3},
    ]
)
_NAMES = st.text('ab"\\ é', min_size=1, max_size=4)


def _nested(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    objects = st.dictionaries(_NAMES, inner, max_size=4).flatmap(
        lambda properties: st.lists(st.sampled_from(sorted(properties) or ["zz"]), unique=True).map(
            lambda required: {"type": "object", "properties": properties, "required": required}
        )
    )
    arrays = inner.map(lambda items: {"type": "array", "items": items, "maxItems": 3})
    unions = st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts})
    both = st.tuples(objects, objects).map(lambda parts: {"allOf": list(parts)})
    return objects | arrays | unions | both


@settings(max_examples=150, deadline=None)
@given(st.recursive(_SCALARS, _nested, max_leaves=8), st.integers(0, 2**16))
def test_what_is_not_reported_is_enforced(schema: Schema, seed: int) -> None:
    try:
        samples, unenforced = draw(schema, seed, 10)
    except ApiError as error:
        event(error.code or "")
        return
    if not unenforced:
        for text in samples:
            validate(text, schema)


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "properties",
                        "items",
                        "allOf",
                        "anyOf",
                        "enum",
                        "$ref",
                        "minimum",
                        "required",
                        "pattern",
                        "additionalProperties",
                        "minLength",
                        "prefixItems",
                        "not",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_translated_or_refused_with_400(document: object) -> None:
    with contextlib.suppress(ApiError):
        draw(document, 0, 1)


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "uniqueItems"),
        ({"type": "string", "minLength": 200}, "minLength"),
        ({"not": {"type": "string"}}, "not"),
        ({"if": {"type": "string"}, "then": {"minLength": 1}}, "if"),
        ({"type": "number", "multipleOf": 0.3}, "multipleOf"),
        ({"type": "string", "pattern": "(?=a)b"}, "pattern"),
        ({"type": "object", "properties": {"x": {"not": {}}}}, "properties.x.not"),
        (
            {"properties": {"x_a": {"type": "string"}}, "patternProperties": {"^x": {"enum": [1]}}},
            "patternProperties",
        ),
        (
            {
                "patternProperties": {"^x": {}},
                "additionalProperties": False,
                "required": ["y"],
            },
            "patternProperties",
        ),
    ],
)
def test_what_a_grammar_cannot_promise_is_named(schema: Schema, keyword: str) -> None:
    assert keyword in draw(schema, 0, 1)[1]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/missing"},
        {"$ref": "http://example.com/schema"},
        {"type": "text"},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "string", "pattern": "(a"},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"enum": []},
        False,
        7,
    ],
)
def test_unusable_schemas_are_refused(schema: object) -> None:
    with pytest.raises(ApiError) as caught:
        draw(schema, 0, 1)
    assert caught.value.code == "invalid_schema"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "ever end"),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {
                    "a": {"type": "array", "items": {"$ref": "#/$defs/b"}, "minItems": 1},
                    "b": {"properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]},
                },
            },
            "ever end",
        ),
        ({"properties": {"a": {"$ref": "#there"}}, "$defs": {"b": {"$anchor": "there"}}}, "anchor"),
    ],
)
def test_references_that_lead_nowhere_are_refused(schema: Schema, reason: str) -> None:
    with pytest.raises(ApiError, match=reason):
        draw(schema, 0, 1)


def test_lists_have_no_more_items_than_there_is_room_for() -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    schema = {
        "type": "array",
        "items": {"type": "object", "properties": {"n": numbers}, "required": ["n"]},
    }
    for wanted, most in ((schema, 3), ({**schema, "minItems": 7}, 7), (numbers, 12)):
        builder = GrammarBuilder(most_items=3)
        grammar = builder.text(SchemaTranslator(builder, wanted).expression())
        rng = random.Random(1)  # noqa: S311 - drawing samples, no secrets
        sizes = {len(json.loads(GrammarReader(grammar).draw(rng))) for _ in range(200)}
        assert max(sizes) == most


def test_properties_follow_the_order_of_the_schema() -> None:
    schema = {
        "type": "object",
        "properties": {name: {"type": "null"} for name in ("zebra", "apple", "mango")},
        "required": ["apple", "mango", "zebra"],
    }
    assert {tuple(json.loads(text)) for text in draw(schema, 3)[0]} == {("zebra", "apple", "mango")}


def test_deep_nesting_is_refused_and_not_recursed_into() -> None:
    schema: Any = {"type": "string"}
    for _ in range(10_000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ApiError) as caught:
        draw(schema, 0, 1)
    assert "nest" in caught.value.message


@pytest.mark.parametrize("pattern", [r"(?=a)", r"a\b", r"(a)\1", r"(?<!a)b", "a{1,9999}"])
def test_patterns_beyond_a_grammar_say_so(pattern: str) -> None:
    with pytest.raises(PatternError, match="cannot be enforced"):
        pattern_expression(pattern, json=False, search=False)


@given(st.text(max_size=30))
def test_any_pattern_is_read_or_refused(pattern: str) -> None:
    with contextlib.suppress(PatternError):
        pattern_expression(pattern, json=True, search=True)
