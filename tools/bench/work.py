"""What the measured processes are asked, and the prompts they are asked with."""

from __future__ import annotations

import random

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
    """Ask for answers of exactly `tokens` tokens to all prompts, `concurrency` at a time."""

    prompts: list[str]
    concurrency: int
    tokens: int


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
