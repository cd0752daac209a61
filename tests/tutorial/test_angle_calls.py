"""The format of the tutorial keeps the laws, and what it guarantees is what it reads."""

from __future__ import annotations

import json
import random

import jsonschema
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.grammar.examples import GrammarReader
from pegboard_contracts.testing.formats import (
    ToolFormatLaws,
    Transcript,
    calls_of,
    counted_ids,
    read,
)

from tests.tutorial.angle_calls import AngleCalls

WEATHER = Tool(
    name="weather",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    },
)


class TestAngleCalls(ToolFormatLaws):
    plugin = AngleCalls
    # The tutorial's file is in no distribution, so nothing names it.
    test_its_entry_point_is_the_class = None  # type: ignore[assignment] # not collected
    templates = ("{% if tools %}Call with <<name {...}>>{% endif %}",)
    transcripts = (
        Transcript(
            '<<weather {"city": "Oslo", "days": 3}>>',
            calls=(("weather", {"city": "Oslo", "days": 3}),),
        ),
        Transcript(
            'One moment. <<weather {"city": "Oslo"}>>\n<<weather {"city": ">>"}>>',
            text="One moment. ",
            calls=(("weather", {"city": "Oslo"}), ("weather", {"city": ">>"})),
        ),
        Transcript('<<weather {"city": "Os', calls=(("weather", {}),), complete=False),
        Transcript("std::cout << 1 >> 2", text="std::cout << 1 >> 2", tools=(WEATHER,)),
        Transcript('<<unknown {"a": 1}>>', text='<<unknown {"a": 1}>>', tools=(WEATHER,)),
        Transcript("<<weather>>", text="<<weather>>", tools=(WEATHER,)),
    )


def test_what_is_guaranteed_is_read_and_valid() -> None:
    choice = ToolChoice(mode="required")
    constraint = AngleCalls().constraint((WEATHER,), choice, parallel=True)
    assert constraint is not None
    grammar = GrammarReader(constraint.value)
    for seed in range(50):
        text = grammar.draw(random.Random(seed))  # noqa: S311 - samples, no secrets
        calls = calls_of(read(AngleCalls().reader((WEATHER,), counted_ids()), [text]))
        assert calls
        for call in calls:
            assert call.complete
            jsonschema.validate(json.loads(call.arguments), WEATHER.parameters or {})
