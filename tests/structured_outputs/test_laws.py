"""The built-in structured outputs keep the laws."""

from __future__ import annotations

from typing import Any, ClassVar

from pegboard_contracts.testing.structured_outputs import StructuredOutputLaws
from pegboard_structured_outputs import choice, grammar, json_object, json_schema, regex

Good = dict[str, tuple[Any, str]]

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}


class TestJsonSchema(StructuredOutputLaws):
    plugin = json_schema.plugin
    good: ClassVar[Good] = {
        "object": (PERSON, '{"name": "Ann", "age": 3}'),
        "optional": (PERSON, '{"name": "Ann"}'),
        "anything": ({}, '[1, {"a": null}]'),
        "unique": ({"type": "array", "uniqueItems": True}, "[1, 2]"),
        "reference": ({"$defs": {"a": PERSON}, "$ref": "#/$defs/a"}, '{"name": ""}'),
        "tuple of draft 7": (
            {"type": "array", "items": [{"type": "integer"}, {"const": "a"}], "minItems": 2},
            '[1, "a"]',
        ),
        "bound of draft 4": ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, "1.5"),
    }
    bad: ClassVar[dict[str, Any]] = {
        "type": {"type": "nothing"},
        "nothing allowed": {"type": "integer", "minimum": 3, "maximum": 2},
        "no schema": [1],
        "false": False,
        "missing": {"$ref": "#/$defs/missing"},
        "itself": {"$ref": "#"},
        "without end": {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    }


class TestJsonObject(StructuredOutputLaws):
    plugin = json_object.plugin
    good: ClassVar[Good] = {"nothing": (None, '{"a": [1, 2], "b": {}}')}
    bad: ClassVar[dict[str, Any]] = {}


class TestRegex(StructuredOutputLaws):
    plugin = regex.plugin
    good: ClassVar[Good] = {
        "words": ("(yes|no)( [a-z]+){0,3}", "yes of course"),
        "classes": (r"\d{3}-[A-F]+", "123-ABC"),
    }
    bad: ClassVar[dict[str, Any]] = {
        "open": "(unclosed",
        "look ahead": "(?=abcdefgh)b",
        "empty": "",
        "number": 3,
    }


class TestGrammar(StructuredOutputLaws):
    plugin = grammar.plugin
    good: ClassVar[Good] = {
        "one": ('root ::= "a" [0-9]+ | word\nword ::= [a-z]*', "a42"),
        "recursive": ('root ::= "b" | "a" root', "aab"),
    }
    bad: ClassVar[dict[str, Any]] = {
        "no root": 'start ::= "abcdefgh"',
        "number": 3,
        "nothing": None,
        "without end": 'root ::= root "abcdefgh"',
        "without end by others": 'root ::= "abcdefgh" a\na ::= "abcdefgh" root',
    }


def test_a_rule_of_several_lines_is_left_to_the_engine() -> None:
    several = 'root ::= root "a"\n  | "b"'
    assert grammar.plugin().compile(several).constraint.value == several


class TestChoice(StructuredOutputLaws):
    plugin = choice.plugin
    good: ClassVar[Good] = {"two": (["positive", "nega\ntive"], "nega\ntive")}
    bad: ClassVar[dict[str, Any]] = {"none": [], "empty": [""], "number": [1], "text": "abcdefghij"}
