"""The official SDK: streams, their helper, replays and the WebSocket, all events validated."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import openai
from openai import OpenAI
from pydantic import BaseModel

client: Any = OpenAI(
    base_url=os.environ["SERVER_URL"] + "/v1",
    api_key="dummy",
    max_retries=0,
    _strict_response_validation=True,
)
MODEL = "scripted"
E = TypeVar("E", bound=openai.APIError)
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
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


def raised(kind: type[E], call: Callable[[], object]) -> E:
    """Return the error that a call raises."""
    try:
        result = call()
    except kind as error:
        return error
    raise AssertionError(result)


def check_raw_events_are_numbered_and_complete() -> None:
    with client.responses.create(
        model=MODEL, input="weather", tools=[WEATHER], stream=True
    ) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done")
    arguments = "".join(
        event.delta for event in events if event.type == "response.function_call_arguments.delta"
    )
    assert arguments == '{"city": "Paris"}'
    last = events[-1]
    assert last.type == "response.completed"
    assert client.responses.retrieve(last.response.id) == last.response


def check_the_helper_gathers_text() -> None:
    with client.responses.stream(model=MODEL, input="hello there friend") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == "hello there friend"


def check_the_helper_gathers_calls_and_reasoning() -> None:
    with client.responses.stream(model=MODEL, input="weather", tools=[WEATHER]) as stream:
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    call = final.output[-1]
    assert call.type == "function_call"
    assert call.parsed_arguments == {"city": "Paris"}


def check_the_helper_parses() -> None:
    with client.responses.stream(model=MODEL, input="a person", text_format=Person) as stream:
        final = stream.get_final_response()
    assert final.output_parsed == Person(name="Ada", age=36)


def check_a_length_stop_ends_incomplete() -> None:
    with client.responses.create(
        model=MODEL, input="essay", max_output_tokens=16, stream=True
    ) as stream:
        last = list(stream)[-1]
    assert last.type == "response.incomplete"
    assert last.response.output_text.split() == ["word"] * 16


def check_a_fault_is_raised() -> None:
    with client.responses.create(model=MODEL, input="boom", stream=True) as stream:
        error = raised(openai.APIError, lambda: list(stream))
    assert "engine" in error.message


def check_a_finished_stream_is_replayed() -> None:
    with client.responses.create(
        model=MODEL, input="weather", tools=[WEATHER], stream=True
    ) as stream:
        events = list(stream)
    first = events[0]
    assert first.type == "response.created"
    with client.responses.retrieve(first.response.id, stream=True) as stream:
        assert list(stream) == events
    with client.responses.retrieve(first.response.id, stream=True, starting_after=3) as stream:
        assert list(stream) == events[4:]


def check_a_running_stream_is_followed() -> None:
    with client.responses.create(
        model=MODEL, input="slow", max_output_tokens=40, stream=True
    ) as stream:
        first, second = next(stream), next(stream)
        assert first.type == "response.created"
        with client.responses.retrieve(
            first.response.id, stream=True, starting_after=second.sequence_number
        ) as follower:
            followed = list(follower)
        assert followed == list(stream)
    last = followed[-1]
    assert last.type == "response.incomplete"
    assert last.response.output_text.split() == ["x"] * 40


def check_the_helper_resumes_from_an_id() -> None:
    with client.responses.create(model=MODEL, input="hello there", stream=True) as stream:
        first, *_ = list(stream)
    assert first.type == "response.created"
    with client.responses.stream(response_id=first.response.id, starting_after=2) as helper:
        numbers = [event.sequence_number for event in helper]
        final = helper.get_final_response()
    assert numbers[0] == 3
    assert final.output_text == "hello there"


def check_automatic_compaction_in_a_stream() -> None:
    # Without the events of its own that a closed list of types cannot know.
    plain = client.with_options(base_url=os.environ["STRICT_SERVER_URL"] + "/v1")
    history: list[Any] = []
    for number in range(8):
        history += [
            {"role": "user", "content": f"question {number} " + "long " * 40},
            {"role": "assistant", "content": f"answer {number} " + "long " * 40},
        ]
    with plain.responses.stream(
        model=MODEL,
        input=[*history, {"role": "user", "content": "go on"}],
        context_management=[{"type": "compaction", "compact_threshold": 300}],
    ) as stream:
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["compaction", "message"]
    assert final.output_text == "go on"


def check_a_socket_answers_in_turns() -> None:
    with client.responses.connect(max_retries=0) as connection:
        previous: str | None = None
        for text in ("hello there", "and again"):
            connection.response.create(model=MODEL, input=text, previous_response_id=previous)
            for event in connection:
                if event.type == "response.completed":
                    break
                assert event.type not in ("error", "response.failed"), event
            else:
                raise AssertionError("the socket was closed")
            assert event.response.output_text == text
            assert event.response.previous_response_id == previous
            previous = event.response.id
