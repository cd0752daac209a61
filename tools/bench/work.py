"""What the measured processes are asked, and the prompts they are asked with."""

from __future__ import annotations

import random
from typing import Any

import msgspec

SYSTEM = "You are a helpful assistant."

_WORDS = (
    *("time", "year", "way", "day", "man", "thing", "life", "child", "world", "school", "state"),
    *("family", "group", "country", "problem", "hand", "part", "place", "case", "week", "work"),
    *("system", "question", "number", "night", "point", "home", "water", "room", "money", "story"),
)

LENGTHS = {"short": 24, "long": 460}
"""Words of a prompt by kind; with the template, `long` is about 500 tokens."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for answers of exactly `tokens` tokens to all prompts, `concurrency` at a time.

    With `schemas`, which must allow answers of so many tokens, each prompt in turn gets one.
    """

    prompts: list[str]
    concurrency: int
    tokens: int
    schemas: list[dict[str, Any]] = []


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Tell how it went: seconds in all, and from asking to the first text of each answer."""

    seconds: float
    first: list[float]
    prompt_tokens: int
    output_tokens: int


def fresh_prompts(kind: str, count: int, chance: random.Random) -> list[str]:
    """Make prompts that share no beginning, so that no prefix cache helps."""
    return [
        "Tell me about " + " ".join(chance.choices(_WORDS, k=LENGTHS[kind])) + "."
        for _ in range(count)
    ]


def small_schemas(round_number: int) -> list[dict[str, Any]]:
    """Make eight different small schemas of long answers; each round has its own."""
    text, whole = {"type": "string"}, {"type": "integer", "minimum": round_number}
    items: list[dict[str, Any]] = [
        whole,
        {"enum": ["red", "green", "blue", str(round_number)]},
        {"type": "number", "minimum": round_number, "maximum": round_number + 1},
        {"type": "boolean"},
        _object(name=text, age=whole),
        _object(city=text, tags={"type": "array", "items": text, "maxItems": 3}),
        _object(at={"type": "string", "format": "date"}, ok={"type": "boolean"}),
        _object(kind={"enum": ["a", "b"]}, inner=_object(x=whole)),
    ]
    return [
        _object(**{f"list_{round_number}": {"type": "array", "items": one, "minItems": 64}})
        for one in items
    ]


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
