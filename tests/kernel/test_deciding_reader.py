"""Answers whose format is not known are decided by their first opening marker."""

from __future__ import annotations

import json

import pytest
from pegboard_contracts.conversation import Tool
from pegboard_contracts.formats import ToolFormat
from pegboard_contracts.testing.formats import calls_of, counted_ids, text_of
from pegboard_kernel.generation.format_choice import DecidingReader
from pegboard_tool_formats.generic_json import GenericJson
from pegboard_tool_formats.hermes import Hermes

_NOTE = Tool(name="note")
_BARE = '{"name": "note", "arguments": {"body": "write <tool_call> and </tool_call> here"}}'
_TAGGED = '<tool_call>\n{"name": "note", "arguments": {"n": 1}}\n</tool_call>'


def _formats() -> dict[str, ToolFormat]:
    return {"generic_json": GenericJson(), "hermes": Hermes()}


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_marker_inside_the_arguments_of_a_bare_call_decides_nothing(size: int) -> None:
    reader = DecidingReader(_formats(), (_NOTE,), counted_ids())
    events = [e for at in range(0, len(_BARE), size) for e in reader.feed(_BARE[at : at + size])]
    events += reader.finish()
    calls = [(call.name, json.loads(call.arguments)) for call in calls_of(events)]
    assert calls == [("note", json.loads(_BARE)["arguments"])]
    assert text_of(events).strip() == ""


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_first_marker_decides(size: int) -> None:
    text = "I note it. " + _TAGGED
    reader = DecidingReader(_formats(), (_NOTE,), counted_ids())
    events = [e for at in range(0, len(text), size) for e in reader.feed(text[at : at + size])]
    events += reader.finish()
    calls = [(call.name, json.loads(call.arguments)) for call in calls_of(events)]
    assert calls == [("note", {"n": 1})]
    assert text_of(events).strip() == "I note it."
