"""The official SDK: conversations and their items, all replies validated."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import openai
from openai import OpenAI

client: Any = OpenAI(
    base_url=os.environ["SERVER_URL"] + "/v1",
    api_key="dummy",
    max_retries=0,
    _strict_response_validation=True,
)
MODEL = "scripted"
E = TypeVar("E", bound=openai.APIError)


def raised(kind: type[E], call: Callable[[], object]) -> E:
    """Return the error that a call raises."""
    try:
        result = call()
    except kind as error:
        return error
    raise AssertionError(result)


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def check_a_conversation_lives_and_dies() -> None:
    made = client.conversations.create(items=[said("begin")], metadata={"a": "b"})
    assert made.metadata == {"a": "b"}
    assert client.conversations.retrieve(made.id) == made
    assert client.conversations.update(made.id, metadata={"c": "d"}).metadata == {"c": "d"}
    gone = client.conversations.delete(made.id)
    assert (gone.id, gone.deleted) == (made.id, True)
    error = raised(openai.NotFoundError, lambda: client.conversations.retrieve(made.id))
    assert error.type == "invalid_request_error"


def check_items_are_added_listed_shown_and_dropped() -> None:
    made = client.conversations.create()
    call: Any = {
        "type": "function_call",
        "call_id": "c1",
        "name": "get_weather",
        "arguments": "{}",
    }
    output: Any = {"type": "function_call_output", "call_id": "c1", "output": "It is sunny"}
    answer: Any = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "yes"}],
    }
    added = client.conversations.items.create(made.id, items=[said("one"), answer, call, output])
    assert len(added.data) == 4
    page = client.conversations.items.list(made.id, limit=2, order="asc")
    assert (len(page.data), page.has_more) == (2, True)
    kinds = [item.type for item in page]
    assert kinds == ["message", "message", "function_call", "function_call_output"]
    first = added.data[0]
    assert first.type == "message"
    assert client.conversations.items.retrieve(first.id, conversation_id=made.id) == first
    left = client.conversations.items.delete(first.id, conversation_id=made.id)
    assert left.id == made.id
    assert len(list(client.conversations.items.list(made.id))) == 3


def check_turns_are_appended() -> None:
    made = client.conversations.create(items=[said("from the start")])
    for number in range(3):
        answer = client.responses.create(model=MODEL, input=f"turn {number}", conversation=made.id)
        assert answer.conversation is not None
        assert answer.conversation.id == made.id
    items = list(client.conversations.items.list(made.id, order="asc"))
    roles = [item.role for item in items if item.type == "message"]
    assert roles == ["user", *["user", "assistant"] * 3]


def check_streamed_turns_and_tools_are_appended() -> None:
    made = client.conversations.create()
    tool: Any = {
        "type": "function",
        "name": "get_weather",
        "strict": False,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    with client.responses.stream(
        model=MODEL, input="weather", conversation=made.id, tools=[tool]
    ) as stream:
        call = stream.get_final_response().output[-1]
    assert call.type == "function_call"
    output: Any = {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": "It is sunny",
    }
    answer = client.responses.create(
        model=MODEL, input=[output], conversation={"id": made.id}, tools=[tool]
    )
    assert answer.output_text == "Sunny in Paris."
    kinds = [item.type for item in client.conversations.items.list(made.id, order="asc")]
    assert kinds == [
        "message", "reasoning", "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip
