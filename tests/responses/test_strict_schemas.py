"""Strict readers: the public Open Responses schema and the official SDK's own models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openai import OpenAI
from openai.types.responses import Response

DOCUMENT = Path(__file__).with_name("data") / "openresponses.json"
TOOL: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
BODIES: list[dict[str, Any]] = [
    {"input": "hello"},
    {"input": "think", "include": ["reasoning.encrypted_content"]},
    {"input": "weather", "tools": [TOOL], "tool_choice": "auto"},
    {"input": "twice", "tools": [TOOL], "parallel_tool_calls": False},
    {"input": "essay", "max_output_tokens": 16},
    {"input": "boom"},
    {
        "input": [
            {"role": "developer", "content": "d"},
            {"role": "user", "content": "long " * 300},
            {"role": "assistant", "content": "a"},
            {"role": "user", "content": "go"},
        ],
        "context_management": [{"type": "compaction", "compact_threshold": 100}],
    },
    {
        "input": "hello",
        "instructions": "i",
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "temperature": 0,
        "top_p": 0.5,
        "user": "u",
        "tools": [TOOL],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "get_weather"}],
        },
        "text": {"format": {"type": "text"}, "verbosity": "low"},
    },
]


@cache
def validators() -> tuple[
    dict[str, Draft202012Validator], Draft202012Validator, Draft202012Validator
]:
    """Make a validator for each event by its type, for the response and for a compaction."""
    document = json.loads(DOCUMENT.read_text())
    schemas: dict[str, Any] = document["components"]["schemas"]

    def validator(name: str) -> Draft202012Validator:
        root = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        return Draft202012Validator(root)

    events = {
        kind: validator(name)
        for name, schema in schemas.items()
        if name.endswith("StreamingEvent")
        for kind in schema["properties"]["type"]["enum"]
    }
    return events, validator("ResponseResource"), validator("CompactResource")


def complaints(validator: Draft202012Validator, value: dict[str, Any]) -> list[str]:
    untyped: Any = validator
    return [f"{error.json_path}: {error.message[:200]}" for error in untyped.iter_errors(value)]


@pytest.fixture(scope="module")
def strict(scripted_server: Callable[..., str]) -> Iterator[OpenAI]:
    script = {
        "context_tokens": 2000,
        "tool_format": "hermes",
        "reasoning_format": "think_tags",
        "rules": _rules(),
        "default": {"echo": True},
    }
    url = scripted_server(script, "--compat", "openresponses")
    with OpenAI(
        base_url=f"{url}/v1", api_key="x", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


def _rules() -> list[dict[str, Any]]:
    call = '<tool_call>{"name": "get_weather", "arguments": {"city": "A"}}</tool_call>'
    return [
        {"match": "Summarize the conversation so far", "pieces": ["It", " is", " short."]},
        {"match": "weather", "pieces": ["<think>", "hm", "</think>", "ok ", call]},
        {"match": "twice", "pieces": [call, "\n", call]},
        {"match": "think", "pieces": ["<think>", "a ", "b ", "</think>", "done"]},
        {"match": "boom", "pieces": ["a ", "b ", "c "], "raise_after": 2},
        {"match": "essay", "pieces": ["word "], "repeat": 64},
    ]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: str(body["input"])[:8])
def test_events_and_objects_keep_the_public_schema(strict: OpenAI, body: dict[str, Any]) -> None:
    by_type, resource, _ = validators()
    raw: Any = strict.with_raw_response
    if body["input"] != "boom":
        answer = raw.responses.create(**{"model": "scripted", **body}).http_response.json()
        assert complaints(resource, answer) == []
        assert answer["background"] is False
    stream = raw.responses.create(**{"model": "scripted", "stream": True, **body})
    lines = [
        line.removeprefix("data: ")
        for line in stream.http_response.read().decode().split("\n")
        if line.startswith("data: ") and line != "data: [DONE]"
    ]
    assert lines
    for line in lines:
        event = json.loads(line)
        assert complaints(by_type[event["type"]], event) == []


@pytest.mark.parametrize("body", BODIES, ids=lambda body: str(body["input"])[:8])
def test_the_official_sdk_reads_everything_strictly(strict: OpenAI, body: dict[str, Any]) -> None:
    given: dict[str, Any] = {"model": "scripted", **body}
    responses: Any = strict.responses
    if body["input"] == "boom":
        return
    made = responses.create(**given)
    Response.model_validate(made.to_dict(mode="json"))
    assert responses.retrieve(made.id).output_text == made.output_text
    items = responses.input_items.list(made.id).data
    assert items
    with responses.stream(**given) as stream:
        seen = [event.type for event in stream]
    assert seen[-1] in ("response.completed", "response.incomplete")
    responses.delete(made.id)


@pytest.mark.parametrize(
    "given",
    [
        "one short line",
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "long " * 200},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ],
    ],
    ids=["line", "turn", "history"],
)
def test_compactions_keep_the_public_schema(strict: OpenAI, given: str | list[Any]) -> None:
    raw: Any = strict.with_raw_response
    made = raw.responses.compact(model="scripted", input=given).http_response.json()
    assert complaints(validators()[2], made) == []
    assert [item["type"] for item in made["output"]].count("compaction") == 1
    responses: Any = strict.responses
    again = responses.create(
        model="scripted", input=[*made["output"], {"role": "user", "content": "go on"}]
    )
    assert again.status == "completed"


def test_the_official_sdk_loops_over_tools(strict: OpenAI) -> None:
    first = strict.responses.create(model="scripted", input="weather", tools=[TOOL])
    (call,) = [item for item in first.output if item.type == "function_call"]
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = strict.responses.create(
        model="scripted",
        previous_response_id=first.id,
        input=[output],
    )
    assert second.output_text == "sunny"
    replayed: list[Any] = [{"role": "user", "content": "weather"}]
    replayed += [item.to_dict() for item in first.output]
    third = strict.responses.create(model="scripted", input=[*replayed, output], store=False)
    assert third.output_text == "sunny"


def test_the_official_sdk_keeps_conversations(strict: OpenAI) -> None:
    conversation = strict.conversations.create(
        items=[{"type": "message", "role": "user", "content": "a"}], metadata={"k": "v"}
    )
    strict.responses.create(model="scripted", input="b", conversation=conversation.id)
    listed = list(strict.conversations.items.list(conversation.id, order="asc"))
    assert len(listed) == 3
    item = strict.conversations.items.retrieve(str(listed[0].id), conversation_id=conversation.id)
    assert item.type == "message"
    updated = strict.conversations.update(conversation.id, metadata={"k": "w"})
    assert updated.metadata == {"k": "w"}
    assert strict.conversations.delete(conversation.id).deleted


def test_the_official_sdk_polls_cancels_and_counts(strict: OpenAI) -> None:
    job = strict.responses.create(model="scripted", input="hello", background=True)
    while strict.responses.retrieve(job.id).status in ("queued", "in_progress"):
        pass
    assert strict.responses.cancel(job.id).status == "completed"
    count = strict.responses.input_tokens.count(model="scripted", input="hello")
    assert count.input_tokens > 0


def test_the_official_sdk_replays_a_stream(strict: OpenAI) -> None:
    stream = strict.responses.create(model="scripted", input="hello there", stream=True)
    events = list(stream)
    first: Any = events[0]
    response_id: str = first.response.id
    again = list(strict.responses.retrieve(response_id, stream=True, starting_after=2))
    assert [event.type for event in again] == [event.type for event in events[3:]]
