"""Grammars gone on with, combined, and the keywords of schemas."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_contracts.errors import ApiError
from pegboard_contracts.grammar import GrammarBuilder, SchemaTranslator
from pegboard_contracts.grammar.combining import alternatives
from pegboard_contracts.grammar.examples import GrammarReader
from pegboard_contracts.grammar.keywords import keywords_of
from pegboard_contracts.grammar.remainder import remainder

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", 'b"', None]}, "maxItems": 3},
    },
    "required": ["name", "age"],
}
LIST = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
            "required": ["next"],
        }
    },
    "$ref": "#/$defs/node",
}


def grammar_of(schema: object) -> str:
    builder = GrammarBuilder()
    return builder.text(SchemaTranslator(builder, schema).expression())


@settings(deadline=None)
@given(st.sampled_from([PERSON, LIST, {}]), st.integers(0, 2**16), st.floats(0, 1))
def test_any_beginning_can_be_gone_on_with(
    schema: dict[str, object], seed: int, share: float
) -> None:
    chance = random.Random(seed)  # noqa: S311 - drawing samples
    grammar = grammar_of(schema)
    text = GrammarReader(grammar).draw(chance)
    begun = text[: int(len(text) * share)]
    rest = remainder(grammar, begun)
    assert rest is not None
    jsonschema.validate(json.loads(begun + GrammarReader(rest).draw(chance)), schema)


@pytest.mark.parametrize(
    ("grammar", "begun"),
    [
        ('root ::= "ab"', "b"),
        ('root ::= "ab"', "abc"),
        ('root ::= root "a" | "b"', "c"),
        ("root ::= missing", "a"),
        ('root ::= "a"*', "a" * 100_000),
    ],
)
def test_what_cannot_be_gone_on_with_has_no_grammar(grammar: str, begun: str) -> None:
    assert remainder(grammar, begun) is None


def test_a_whole_text_leaves_nothing() -> None:
    rest = remainder('root ::= "ab" ("c" | "d")', "abc")
    assert rest is not None
    assert GrammarReader(rest).draw(random.Random(1)) == ""  # noqa: S311 - no secret


def test_alternatives_keep_their_rules_apart() -> None:
    first = 'root ::= "x" word\nword ::= [a-z]{2,2} | "root"\n'
    second = "root ::= word\nword ::= [0-9]\n"
    reader = GrammarReader(alternatives([first, second]))
    chance = random.Random(3)  # noqa: S311 - drawing samples
    drawn = {reader.draw(chance) for _ in range(200)}
    assert "xroot" in drawn
    assert {text for text in drawn if len(text) == 1} <= set("0123456789")
    assert all(len(text) in (1, 3, 5) for text in drawn)
    assert '# a "word"' in alternatives(['root ::= "a" # a "word"\n', second])


def test_keywords_are_told_from_names_and_values() -> None:
    schema = {
        "title": "minimum",
        "properties": {"maximum": {"enum": [{"pattern": 1}]}},
        "anyOf": [{"required": ["items"]}],
        "$defs": {"x": {"minLength": 1}},
    }
    assert keywords_of(schema) == {"properties", "enum", "anyOf", "required", "minLength"}


def test_references_that_multiply_are_refused() -> None:
    definitions: dict[str, object] = {
        f"d{index}": {"allOf": [{"$ref": f"#/$defs/d{index + 1}"}] * 2} for index in range(40)
    }
    with pytest.raises(ApiError) as refused:
        grammar_of({"$defs": {**definitions, "d40": {"type": "string"}}, "$ref": "#/$defs/d0"})
    assert refused.value.code == "invalid_schema"
