"""The OpenAI SDK against a real server: listing, whole and streamed answers, tools, errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

SCRIPT: dict[str, Any] = {
    "tool_format": "hermes",
    "reasoning_format": "think_tags",
    "rules": [
        {
            "match": "weather in",
            "pieces": [
                "Let me ",
                "look.",
                "<tool_call>",
                '\n{"name": "get_weather",',
                ' "arguments": {"city": "Zü',
                'rich"}}\n',
                "</tool_call>",
                '\n<tool_call>{"name": "get_time", "arguments": {}}</tool_call>',
            ],
        },
        {"match": "sunny", "pieces": ["It is ", "sunny."]},
        {"match": "think", "pieces": ["<think>", "hm", "m", "</think>", "\n\nDone."]},
        {"match": "count", "pieces": ["1 ", "2 ", "3 ", "4 ", "5 "], "finish": "stop"},
        {"match": "boom", "pieces": ["a", "b", "c"], "raise_after": 2},
    ],
    "default": {"echo": True},
}
PARAMETERS: dict[str, object] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "get_time", "description": "now"}},
]
ASK: Any = [{"role": "user", "content": "weather in Zürich?"}]


@pytest.fixture
def sdk(scripted_server: Callable[..., str]) -> Iterator[OpenAI]:
    url = scripted_server(SCRIPT)
    with OpenAI(base_url=f"{url}/v1", api_key="dummy", max_retries=0) as client:
        yield client


def said(text: str) -> Any:
    return [{"role": "user", "content": text}]


def test_models_are_listed_and_retrieved(sdk: OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == ["scripted"]
    model = sdk.models.retrieve("scripted")
    assert (model.object, model.owned_by) == ("model", "pegboard")
    with pytest.raises(openai.NotFoundError) as caught:
        sdk.models.retrieve("org/none")
    assert caught.value.code == "model_not_found"


def test_a_tool_loop_whole(sdk: OpenAI) -> None:
    answer = sdk.chat.completions.create(model="scripted", messages=ASK, tools=TOOLS)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look."
    assert choice.message.tool_calls is not None
    calls: Any = choice.message.tool_calls
    assert [c.function.name for c in calls] == ["get_weather", "get_time"]
    assert json.loads(calls[0].function.arguments) == {"city": "Zürich"}
    assert len({c.id for c in calls}) == 2
    result: Any = {"role": "tool", "tool_call_id": calls[0].id, "content": "sunny"}
    turn: Any = choice.message
    then = sdk.chat.completions.create(model="scripted", messages=[*ASK, turn, result], tools=TOOLS)
    assert then.choices[0].message.content == "It is sunny."
    assert then.choices[0].finish_reason == "stop"


def test_a_tool_loop_streamed(sdk: OpenAI) -> None:
    with sdk.chat.completions.stream(
        model="scripted", messages=ASK, tools=TOOLS, stream_options={"include_usage": True}
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "tool_calls.function.arguments.done"} <= kinds
    message = final.choices[0].message
    assert message.content == "Let me look."
    assert [c.function.name for c in message.tool_calls or ()] == ["get_weather", "get_time"]
    assert json.loads((message.tool_calls or [])[0].function.arguments) == {"city": "Zürich"}
    assert final.usage is not None
    assert final.usage.completion_tokens == 8


def test_reasoning_is_apart_from_content(sdk: OpenAI) -> None:
    answer: Any = sdk.chat.completions.create(model="scripted", messages=said("think"))
    message = answer.choices[0].message
    assert message.reasoning_content == message.reasoning == "hmm"
    assert message.content.strip() == "Done."
    assert answer.usage.completion_tokens_details.reasoning_tokens >= 2
    chunks: list[Any] = list(
        sdk.chat.completions.create(model="scripted", messages=said("think"), stream=True)
    )
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "hmm"
    assert "".join(d.content or "" for d in deltas) == message.content


def test_limits_end_an_answer_as_length(sdk: OpenAI) -> None:
    limits: list[Any] = [{"max_tokens": 2}, {"max_completion_tokens": 2}]
    create: Any = sdk.chat.completions.create
    for limit in limits:
        answer = create(model="scripted", messages=said("count"), **limit)
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (
            "1 2 ",
            "length",
        )
        assert answer.usage.completion_tokens == 2
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + 2


def test_n_answers(sdk: OpenAI) -> None:
    answer = sdk.chat.completions.create(
        model="scripted", messages=said("count"), n=3, temperature=0
    )
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert {c.message.content for c in answer.choices} == {"1 2 3 4 5 "}


def test_errors_have_their_class_and_code(sdk: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        sdk.chat.completions.create(model="none", messages=said("x"))
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.UnprocessableEntityError) as bounds:
        sdk.chat.completions.create(model="scripted", messages=said("x"), temperature=3)
    assert bounds.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        sdk.chat.completions.create(model="scripted", messages=said("word " * 5000))
    assert long.value.code == "context_length_exceeded"
    image: Any = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}
    with pytest.raises(openai.BadRequestError) as media:
        sdk.chat.completions.create(
            model="scripted", messages=[{"role": "user", "content": [image]}]
        )
    assert media.value.code == "unsupported_media"


def test_c34_a_fault_in_mid_stream_reaches_the_caller(sdk: OpenAI) -> None:
    seen: list[str] = []

    def read() -> None:
        for chunk in sdk.chat.completions.create(
            model="scripted", messages=said("boom"), stream=True
        ):
            seen.extend(choice.delta.content or "" for choice in chunk.choices)

    with pytest.raises(openai.APIError):
        read()
    assert "".join(seen) == "ab"
    with pytest.raises(openai.InternalServerError):
        sdk.chat.completions.create(model="scripted", messages=said("boom"))
    answer = sdk.chat.completions.create(model="scripted", messages=said("still here"))
    assert answer.choices[0].message.content == "still here"
