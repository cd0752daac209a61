"""The official SDK on the chat side and the list of models, all replies validated."""

from __future__ import annotations

import os
from typing import Any

from openai import OpenAI
from pydantic import BaseModel

client: Any = OpenAI(
    base_url=os.environ["SERVER_URL"] + "/v1",
    api_key="dummy",
    max_retries=0,
    _strict_response_validation=True,
)
MODEL = "scripted"
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Person(BaseModel):
    name: str
    age: int


def said(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def check_models_are_listed_and_shown() -> None:
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


def check_a_chat_with_a_tool() -> None:
    messages = said("weather in Paris?")
    made = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER])
    message = made.choices[0].message
    assert made.choices[0].finish_reason == "tool_calls"
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.type == "function"
    assert call.function.arguments == '{"city": "Paris"}'
    output = {"role": "tool", "tool_call_id": call.id, "content": "It is sunny"}
    again = client.chat.completions.create(
        model=MODEL, messages=[*messages, message, output], tools=[WEATHER]
    )
    assert again.choices[0].message.content == "Sunny in Paris."


def check_a_streamed_chat() -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=said("weather"), tools=[WEATHER]
    ) as stream:
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].function.parsed_arguments == {"city": "Paris"}


def check_a_parsed_chat() -> None:
    made = client.chat.completions.parse(
        model=MODEL, messages=said("a person"), response_format=Person
    )
    assert made.choices[0].message.parsed == Person(name="Ada", age=36)
