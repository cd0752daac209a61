"""What the two formats of gpt-oss make of answers."""

from __future__ import annotations

import json

import pytest
from pegboard_contracts.conversation import Tool
from pegboard_contracts.testing.formats import (
    ReasoningFormatLaws,
    ToolFormatLaws,
    Transcript,
    calls_of,
    counted_ids,
    cuts,
    read,
    reasoning_of,
    text_of,
)
from pegboard_reasoning_formats.harmony_channels import HarmonyChannels
from pegboard_tool_formats.harmony import Harmony

_ADD = Tool(name="add")
_CALL = "<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>"
_TEMPLATES = ("<|start|>assistant<|channel|>analysis<|message|>{{ thinking }}<|end|>",)


class TestHarmony(ToolFormatLaws):
    """The laws, on answers as gpt-oss writes them."""

    plugin = Harmony
    templates = _TEMPLATES
    transcripts = (
        Transcript(
            '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>',
            calls=(("add", {"a": 1}),),
        ),
        Transcript(
            "<|start|>assistant to=functions.web-browse<|channel|>commentary json<|message|>"
            '{"q": "say <|end|> or <|call|>", "n": [1, 2, {"deep": true}]}<|call|>',
            calls=(("web-browse", {"q": "say <|end|> or <|call|>", "n": [1, 2, {"deep": True}]}),),
        ),
        Transcript(
            f'I will look.{_CALL}{{"a": 1}}<|call|>{_CALL}{{}}<|end|>\nDone.',
            text="I will look.\nDone.",
            calls=(("add", {"a": 1}), ("add", {})),
        ),
        Transcript(f"{_CALL}<|call|>", calls=(("add", {}),)),
        Transcript(
            "<|channel|>final<|message|>Four.<|return|>",
            text="<|channel|>final<|message|>Four.<|return|>",
            tools=(_ADD,),
        ),
        Transcript(
            '<|channel|>commentary to=functions.nobody<|message|>{"a": "<|start|>"}<|call|>',
            text='<|channel|>commentary to=functions.nobody<|message|>{"a": "<|start|>"}<|call|>',
            tools=(_ADD,),
        ),
        Transcript(f'{_CALL}{{"a": 1', calls=(("add", {}),), complete=False),
    )


class TestHarmonyChannels(ReasoningFormatLaws):
    """The laws, on answers as gpt-oss writes them."""

    plugin = HarmonyChannels
    templates = _TEMPLATES
    prompts_that_open = ("<|start|>assistant<|channel|>analysis<|message|>",)
    transcripts = (
        Transcript(
            "<|channel|>analysis<|message|>Two and two.<|end|>"
            "<|start|>assistant<|channel|>final<|message|>Four.<|return|>",
            text="Four.",
            reasoning="Two and two.",
        ),
        Transcript(
            "go on<|end|><|start|>assistant<|channel|>final<|message|>a < b |> c",
            text="a < b |> c",
            reasoning="go on",
            opened=True,
        ),
        Transcript(
            f'<|channel|>analysis<|message|>x<|end|>{_CALL}{{"a": "<|end|>"}}<|call|>',
            text=f'{_CALL}{{"a": "<|end|>"}}<|call|>',
            reasoning="x",
        ),
        Transcript(
            "<|channel|>analysis<|message|>one<|end|><|start|>assistant<|channel|>analysis"
            "<|message|> two<|end|><|start|>assistant<|channel|>final<|message|>",
            reasoning="one two",
        ),
        Transcript("no channels at all", text="no channels at all"),
        Transcript("<|channel|>what is this<|end|>?", text="what is this?"),
        Transcript("<|channel|>analysis<|message|>never closed<|en", reasoning="never closed<|en"),
    )


_Meaning = tuple[str, str, list[tuple[str, object]]]


def _answer(pieces: list[str]) -> _Meaning:
    reasoned = read(HarmonyChannels().reader(opened=False), pieces)
    tools = [Tool(name="web-browse")]
    called = read(Harmony().reader(tools, counted_ids()), [text_of(reasoned)])
    calls = [(call.name, json.loads(call.arguments)) for call in calls_of(called)]
    return reasoning_of(reasoned), text_of(called), calls


_BROWSE: list[tuple[str, object]] = [("web-browse", {"q": "x"})]
_PREAMBLE: _Meaning = ("", "I will look.Hi", [])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            (
                "<|channel|>analysis<|message|>think<|end|>"
                "<|start|>assistant to=functions.web-browse"
                '<|channel|>commentary <|constrain|>json<|message|>{"q":"x"}<|call|>'
            ),
            ("think", "", _BROWSE),
        ),
        (
            (
                "<|channel|>commentary<|channel|>commentary to=functions.web-browse<|message|>"
                '{"q":"x"}<|call|>'
            ),
            ("", "", _BROWSE),
        ),
        (
            (
                "<|channel|>commentary<|message|>I will look.<|end|>"
                "<|start|>assistant<|channel|>final<|message|>Hi<|return|>"
            ),
            _PREAMBLE,
        ),
    ],
)
def test_c17_header_variants(answer: str, expected: _Meaning) -> None:
    for pieces in cuts(answer):
        assert _answer(pieces) == expected
