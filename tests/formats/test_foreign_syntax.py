"""Calls in the syntax of other families: the core formats leave them as the text they are."""

from __future__ import annotations

import json

import pytest
from pegboard_contracts.conversation import Tool
from pegboard_contracts.formats import ToolFormat
from pegboard_contracts.testing.formats import calls_of, counted_ids, cuts, read, text_of
from pegboard_tool_formats.generic_json import GenericJson
from pegboard_tool_formats.harmony import Harmony
from pegboard_tool_formats.hermes import Hermes
from pegboard_tool_formats.llama3_json import Llama3Json
from pegboard_tool_formats.mistral import Mistral
from pegboard_tool_formats.mistral_nemo import MistralNemo
from pegboard_tool_formats.phi4 import Phi4
from pegboard_tool_formats.qwen3_coder import Qwen3Coder

FORMATS: dict[str, ToolFormat] = {
    "generic_json": GenericJson(),
    "harmony": Harmony(),
    "hermes": Hermes(),
    "llama3_json": Llama3Json(),
    "mistral": Mistral(),
    "mistral_nemo": MistralNemo(),
    "phi4": Phi4(),
    "qwen3_coder": Qwen3Coder(),
}
TOOLS = tuple(Tool(name=name) for name in ("run", "bad", "say", "calc", "bash"))
PYTHONIC = (
    "[run(cmd='grep -F \"]\" a.log', n=-3, size=(8,6), **{'from': 'x'}), bad(x=1]), "
    "say(t='it\\'s\nok'), calc(x=1e999)]"
)
DEEPSEEK = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>"  # noqa: RUF001 - the marks
    '{"command": "ls 2>&1"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'  # noqa: RUF001
)
GLM = "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls 2>&1</arg_value>\n</tool_call>"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("text", [PYTHONIC, DEEPSEEK, GLM], ids=["c16", "c27-deepseek", "c27-glm"])
def test_c16_and_c27_other_families_calls_stay_text(name: str, text: str) -> None:
    for pieces in cuts(text):
        events = read(FORMATS[name].reader(TOOLS, counted_ids()), pieces)
        assert calls_of(events) == []
        assert text_of(events) == text


def test_c27_a_wrapper_around_the_arguments_is_left_as_it_is() -> None:
    text = '<tool_call>{"name": "bash", "arguments": {"arguments": {"command": "ls 2>&1"}}}'
    for pieces in cuts(f"{text}</tool_call>"):
        (call,) = calls_of(read(Hermes().reader(TOOLS, counted_ids()), pieces))
        assert json.loads(call.arguments) == {"arguments": {"command": "ls 2>&1"}}
