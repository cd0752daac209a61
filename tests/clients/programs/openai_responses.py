"""The official SDK: creating, reading, ending and counting responses, all replies validated."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

import openai
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import CompactedResponse, Response
from pydantic import BaseModel

OPTIONS: Any = {
    "base_url": os.environ["SERVER_URL"] + "/v1",
    "api_key": "dummy",
    "max_retries": 0,
    "_strict_response_validation": True,
}
MODEL = "scripted"
E = TypeVar("E", bound=openai.APIError)
client: Any = OpenAI(**OPTIONS)
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class Person(BaseModel):
    name: str
    age: int


class GetWeather(BaseModel):
    city: str


def raised(kind: type[E], call: Callable[[], object]) -> E:
    """Return the error that a call raises."""
    try:
        result = call()
    except kind as error:
        return error
    raise AssertionError(result)


def ended(response: Response) -> Response:
    """Poll a job until it ends."""
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    return response


def check_a_string_is_answered() -> None:
    made = client.responses.create(
        model=MODEL,
        input="hello there",
        instructions="be brief",
        metadata={"a": "b"},
        temperature=0.5,
        max_output_tokens=50,
        user="someone",
    )
    assert (made.status, made.output_text) == ("completed", "hello there")
    assert (made.metadata, made.instructions, made.temperature) == ({"a": "b"}, "be brief", 0.5)
    assert made.usage is not None
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens
    assert client.responses.retrieve(made.id) == made


def check_a_chain_remembers() -> None:
    first = client.responses.create(model=MODEL, input="one")
    second = client.responses.create(model=MODEL, input="two", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens


def check_a_tool_loop_with_replayed_output() -> None:
    history: list[Any] = [{"role": "user", "content": "weather in Paris?"}]
    made = client.responses.create(
        model=MODEL, input=history, tools=[WEATHER], include=["reasoning.encrypted_content"]
    )
    assert [item.type for item in made.output] == ["reasoning", "message", "function_call"]
    call = made.output[-1]
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("get_weather", '{"city": "Paris"}')
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "It is sunny"}
    again = client.responses.create(
        model=MODEL, input=[*history, *made.output, output], tools=[WEATHER], store=False
    )
    assert again.output_text == "Sunny in Paris."
    chained = client.responses.create(
        model=MODEL, input=[output], tools=[WEATHER], previous_response_id=made.id
    )
    assert chained.output_text == "Sunny in Paris."


def check_tool_choice_is_obeyed_and_repeated() -> None:
    named: Any = {"type": "function", "name": "get_weather"}
    for choice in (named, "required"):
        made = client.responses.create(
            model=MODEL, input="weather", tools=[WEATHER], tool_choice=choice
        )
        assert made.output[-1].type == "function_call"
    none = client.responses.create(model=MODEL, input="hi", tools=[WEATHER], tool_choice="none")
    assert none.tool_choice == "none"
    assert none.output_text == "hi"


def check_parse_gives_objects() -> None:
    made = client.responses.parse(model=MODEL, input="a person", text_format=Person)
    assert made.output_parsed == Person(name="Ada", age=36)
    assert client.responses.retrieve(made.id).output_text == '{"name": "Ada", "age": 36}'


def check_parse_gives_arguments() -> None:
    tool = openai.pydantic_function_tool(GetWeather, name="get_weather")
    flat: Any = {"type": "function", **tool["function"]}
    made = client.responses.parse(model=MODEL, input="weather", tools=[flat])
    call = made.output[-1]
    assert call.type == "function_call"
    assert call.arguments == '{"city": "Paris"}'


def check_a_length_stop_is_incomplete() -> None:
    made = client.responses.create(model=MODEL, input="essay", max_output_tokens=16)
    assert made.status == "incomplete"
    assert made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"


def check_logprobs_are_included() -> None:
    made = client.responses.create(
        model=MODEL, input="hello there", include=["message.output_text.logprobs"]
    )
    (message,) = made.output
    assert message.type == "message"
    (part,) = message.content
    assert part.type == "output_text"
    assert part.logprobs
    assert "".join(entry.token for entry in part.logprobs) == "hello there"
    shown = client.responses.retrieve(made.id, include=["message.output_text.logprobs"])
    assert shown == made


def check_jobs_are_polled() -> None:
    made = client.responses.create(model=MODEL, input="think", background=True)
    assert made.status in ("queued", "in_progress", "completed")
    done = ended(made)
    assert (done.status, done.output_text, done.background) == ("completed", "done", True)


def check_jobs_are_cancelled() -> None:
    made = client.responses.create(model=MODEL, input="slow", background=True)
    cancelled = client.responses.cancel(made.id)
    assert cancelled.id == made.id
    assert ended(cancelled).status == "cancelled"


def check_deletion() -> None:
    made = client.responses.create(model=MODEL, input="gone soon")
    client.responses.delete(made.id)
    error = raised(openai.NotFoundError, lambda: client.responses.retrieve(made.id))
    assert error.type == "invalid_request_error"


def check_input_items_page_by_page() -> None:
    items: list[Any] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "It is sunny"},
        {"role": "user", "content": "e"},
    ]
    made = client.responses.create(model=MODEL, input=items)
    page = client.responses.input_items.list(made.id, limit=2, order="asc")
    assert (len(page.data), page.has_more) == (2, True)
    kinds = [item.type for item in page]
    assert kinds == ["message", "message", "function_call", "function_call_output", "message"]
    newest = client.responses.input_items.list(made.id, limit=1).data[0]
    assert newest.type == "message"


def check_tokens_are_counted() -> None:
    counted = client.responses.input_tokens.count(model=MODEL, input="a b c", tools=[WEATHER])
    made = client.responses.create(model=MODEL, input="a b c", tools=[WEATHER])
    assert made.usage is not None
    assert counted.input_tokens == made.usage.input_tokens


def refused(kind: type[E], fields: dict[str, Any]) -> E:
    return raised(kind, lambda: client.responses.create(**{"model": MODEL, **fields}))


def long_history() -> list[Any]:
    return [
        {"role": role, "content": f"turn {number} " + "long " * 40}
        for number in range(8)
        for role in ("user", "assistant")
    ]


def check_compaction_is_replayed() -> None:
    history = [{"role": "developer", "content": "keep"}, *long_history()]
    raw = client.responses.with_raw_response.compact(
        model=MODEL, input=history, extra_body={"keep_tokens": 100}
    )
    made: dict[str, Any] = json.loads(raw.text)
    compacted: list[Any] = made["output"]
    # The SDK's types know no message here but the assistant's, against its own documentation.
    output = [item for item in compacted if item.get("role", "assistant") == "assistant"]
    checked = CompactedResponse.model_validate({**made, "output": output})
    assert checked.output[-1].type == "compaction"
    assert checked.usage.output_tokens == 2
    shorter = client.responses.input_tokens.count(model=MODEL, input=compacted)
    longer = client.responses.input_tokens.count(model=MODEL, input=history)
    assert shorter.input_tokens < longer.input_tokens
    again = client.responses.create(
        model=MODEL, input=[*compacted, {"role": "user", "content": "go on"}]
    )
    assert again.output_text == "go on"


def check_automatic_compaction() -> None:
    made = client.responses.create(
        model=MODEL,
        input=[*long_history(), {"role": "user", "content": "go on"}],
        context_management=[{"type": "compaction", "compact_threshold": 300}],
    )
    assert made.output_text == "go on"
    assert [item.type for item in made.output] == ["compaction", "message"]
    again = client.responses.create(model=MODEL, input="next", previous_response_id=made.id)
    assert again.output_text == "next"


def check_mistakes_are_typed_errors() -> None:
    unknown: Any = {"type": "web_search"}
    mistakes: list[tuple[type[openai.APIError], str | None, Any]] = [
        (openai.BadRequestError, "tools.0.type", {"input": "x", "tools": [unknown]}),
        (openai.BadRequestError, "temperature", {"input": "x", "temperature": 9}),
        (openai.NotFoundError, "model", {"input": "x", "model": "absent"}),
        (openai.BadRequestError, "previous_response_id",
         {"input": "x", "previous_response_id": "resp_absent"}),
    ]  # fmt: skip
    for kind, param, fields in mistakes:
        error = refused(kind, fields)
        assert (error.param, error.type) == (param, "invalid_request_error"), error


def check_a_fault_is_an_internal_error() -> None:
    assert refused(openai.InternalServerError, {"input": "boom"}).status_code == 500


def check_the_beta_door() -> None:
    made = client.beta.responses.create(model=MODEL, input="hello")
    assert client.beta.responses.retrieve(made.id).id == made.id


async def check_the_asynchronous_client() -> None:
    async with AsyncOpenAI(**OPTIONS) as asynchronous:
        made = await asynchronous.responses.create(model=MODEL, input="hello there")
        assert made.output_text == "hello there"
        items = [item async for item in asynchronous.responses.input_items.list(made.id)]
        assert len(items) == 1
        async with asynchronous.responses.stream(model=MODEL, input="think") as stream:
            assert (await stream.get_final_response()).output_text == "done"
