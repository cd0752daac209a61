"""What clients read from events: whole answers, streams, and the agreement of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_contracts.errors import ApiError, server_error
from pegboard_contracts.events import (
    Accepted,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolArgumentsDelta,
    ToolCallDone,
    ToolCallStarted,
)
from pegboard_contracts.generation import FinishReason, GenerationRequest, Sampling, Usage

Wire = Callable[..., Any]
ReadChunks = Callable[[str], list[dict[str, Any]]]

ACCEPTED = Accepted(model="canonical", prompt_tokens=3, sampling=Sampling(), max_output_tokens=9)
USAGE = Usage(prompt_tokens=3, output_tokens=5, reasoning_tokens=1, cached_tokens=2)
BODY: dict[str, Any] = {"model": "alias", "messages": [{"role": "user", "content": "hi"}]}
STREAM = BODY | {"stream": True}


def finished(reason: FinishReason = FinishReason.STOP) -> Finished:
    return Finished(reason=reason, usage=USAGE)


def call(index: int, name: str, *arguments: str) -> list[GenerationEvent]:
    fragments = [ToolArgumentsDelta(index, text) for text in arguments]
    return [ToolCallStarted(index, f"call_{index}", name), *fragments, ToolCallDone(index)]


def folded(chunks: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Fold a stream the way clients do, choice by choice."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            message = choices.setdefault(choice["index"], {"content": None, "calls": {}})
            delta = choice["delta"]
            for key in ("role", "content", "reasoning", "reasoning_content"):
                if delta.get(key) is not None:
                    message[key] = (message.get(key) or "") + delta[key]
            for part in delta.get("tool_calls", []):
                known = message["calls"].setdefault(part["index"], ["", "", ""])
                known[0] += part.get("id", "")
                known[1] += part["function"].get("name", "")
                known[2] += part["function"].get("arguments", "")
            if choice["logprobs"]:
                message.setdefault("logprobs", []).extend(choice["logprobs"]["content"])
            if choice["finish_reason"]:
                message["finish_reason"] = choice["finish_reason"]
    return choices


def whole(choice: dict[str, Any]) -> dict[str, Any]:
    """Bring a whole choice into the form of a folded one."""
    message = choice["message"]
    calls = {
        index: [c["id"], c["function"]["name"], c["function"]["arguments"]]
        for index, c in enumerate(message.get("tool_calls", []))
    }
    kept = {k: message[k] for k in ("reasoning", "reasoning_content") if k in message}
    kept |= {"logprobs": choice["logprobs"]["content"]} if choice["logprobs"] else {}
    return {
        "role": message["role"],
        "content": message["content"],
        "calls": calls,
        "finish_reason": choice["finish_reason"],
        **kept,
    }


def test_a_whole_answer_has_every_key_clients_read(wire: Wire) -> None:
    chat = wire(ACCEPTED, ReasoningDelta("hm"), TextDelta("He"), TextDelta("llo"), finished())
    answer = chat.ask(BODY).json()
    assert answer["id"].startswith("chatcmpl-")
    assert abs(answer["created"] - time.time()) < 60
    assert isinstance(answer["created"], int)
    assert (answer["object"], answer["model"]) == ("chat.completion", "canonical")
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Hello",
                "refusal": None,
                "reasoning_content": "hm",
                "reasoning": "hm",
            },
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }


def test_content_is_null_beside_calls_alone(wire: Wire) -> None:
    events = [*call(0, "f", '{"a":', "1}"), *call(1, "g", "{}")]
    chat = wire(ACCEPTED, *events, finished(FinishReason.TOOL_CALLS))
    choice = chat.ask(BODY).json()["choices"][0]
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"] == [
        {"id": "call_0", "function": {"name": "f", "arguments": '{"a":1}'}, "type": "function"},
        {"id": "call_1", "function": {"name": "g", "arguments": "{}"}, "type": "function"},
    ]
    assert wire(ACCEPTED, finished()).ask(BODY).json()["choices"][0]["message"]["content"] == ""


def test_a_stream_is_one_shape_from_the_role_to_the_finish(
    wire: Wire, read_chunks: ReadChunks
) -> None:
    chat = wire(ACCEPTED, TextDelta("a\n\n\u2028é"), *call(0, "f", "{}"), finished())
    response = chat.ask(STREAM)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-store"
    chunks = read_chunks(response.text)
    assert len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert all("usage" not in c for c in chunks)
    assert [c["choices"][0]["delta"] for c in chunks] == [
        {"role": "assistant", "content": None},
        {"content": "a\n\n\u2028é"},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_0",
                    "function": {"name": "f", "arguments": ""},
                    "type": "function",
                }
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {},
    ]
    reasons = [c["choices"][0]["finish_reason"] for c in chunks]
    assert reasons == [None] * 4 + ["stop"]


def test_usage_comes_once_with_no_choice_and_only_when_asked(
    wire: Wire, read_chunks: ReadChunks
) -> None:
    body = STREAM | {"stream_options": {"include_usage": True}}
    chunks = read_chunks(wire(ACCEPTED, TextDelta("a"), finished()).ask(body).text)
    assert [c["usage"] is None for c in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 8
    off = STREAM | {"stream_options": {"include_usage": None}}
    assert "usage" not in wire().ask(off).text


def test_logprobs_in_the_shape_of_the_sdk(wire: Wire, read_chunks: ReadChunks) -> None:
    given_ = TokenLogprob("é", -0.5, (("é", -0.5), ("x", float("-inf"))))
    wanted = {
        "token": "é",
        "logprob": -0.5,
        "bytes": [195, 169],
        "top_logprobs": [
            {"token": "é", "logprob": -0.5, "bytes": [195, 169]},
            {"token": "x", "logprob": -9999.0, "bytes": [120]},
        ],
    }
    events = (ACCEPTED, TextDelta("é", (given_,)), finished())
    asked = {"logprobs": True, "top_logprobs": 2}
    answer = wire(*events).ask(BODY | asked).json()
    assert answer["choices"][0]["logprobs"] == {"content": [wanted], "refusal": None}
    chunks = read_chunks(wire(*events).ask(STREAM | asked).text)
    assert folded(chunks)[0]["logprobs"] == [wanted]
    assert wire(*events).ask(BODY).json()["choices"][0]["logprobs"] is None


def test_c120_n_answers_have_their_own_indices_and_one_prompt(
    saying: Callable[..., Any], read_chunks: ReadChunks
) -> None:
    def say(request: GenerationRequest) -> list[GenerationEvent]:
        seed = request.sampling.seed
        return [ACCEPTED, *[TextDelta(f"{seed} ")] * 50, finished()]

    wanted = [f"{seed} " * 50 for seed in (5, 6, 7, 8)]
    answer = saying(say).ask(BODY | {"n": 4, "seed": 5}).json()
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2, 3]
    assert [c["message"]["content"] for c in answer["choices"]] == wanted
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (3, 20)
    body = STREAM | {"n": 4, "seed": 5, "stream_options": {"include_usage": True}}
    chunks = read_chunks(saying(say).ask(body).text)
    choices = folded(chunks)
    assert [choices[index]["content"] for index in range(4)] == wanted
    assert chunks[-1]["usage"] == answer["usage"]


def test_a_fault_before_acceptance_is_an_http_error_for_streams_too(wire: Wire) -> None:
    fault = ApiError(503, "full", code="server_overloaded", retry_after=2.4)
    for body in (BODY, STREAM, STREAM | {"n": 3}):
        chat = wire(fault)
        response = chat.ask(body)
        assert response.status_code == 503
        assert response.headers["retry-after"] == "3"
        assert response.json()["error"]["code"] == "server_overloaded"
        assert chat.generator.open == 0


def test_one_of_n_that_fails_takes_the_others_along(
    saying: Callable[..., Any], read_chunks: ReadChunks
) -> None:
    def refuse(request: GenerationRequest) -> list[Any]:
        late = request.sampling.seed == 7
        return [server_error()] if late else [ACCEPTED, *[TextDelta("a")] * 9, finished()]

    def break_off(request: GenerationRequest) -> list[Any]:
        return refuse(request) if request.sampling.seed != 7 else [ACCEPTED, server_error()]

    for body in (BODY, STREAM):
        chat = saying(refuse)
        assert chat.ask(body | {"n": 3, "seed": 5}).status_code == 500
        assert chat.generator.open == 0
    chat = saying(break_off)
    chunks = read_chunks(chat.ask(STREAM | {"n": 3, "seed": 5}).text)
    assert chunks[-1]["error"]["type"] == "server_error"
    assert chat.generator.open == 0


def test_c34_a_fault_in_mid_stream_is_told_in_the_stream(
    wire: Wire, read_chunks: ReadChunks
) -> None:
    for fault, code in (
        (ApiError(500, "it died", code="engine_crashed"), "engine_crashed"),
        (ValueError("secret"), "internal_error"),
        (ConnectionResetError("a pipe of ours"), "internal_error"),
    ):
        text = wire(ACCEPTED, TextDelta("a"), fault).ask(STREAM).text
        chunks = read_chunks(text)
        assert chunks[1]["choices"][0]["delta"] == {"content": "a"}
        assert set(chunks[-1]) == {"error"}
        assert set(chunks[-1]["error"]) == {"message", "type", "param", "code"}
        assert chunks[-1]["error"]["code"] == code
        assert "secret" not in text
        assert text.count("[DONE]") == 1


TEXTS = st.text(max_size=8)
PARTS = st.one_of(
    st.lists(TEXTS, min_size=1, max_size=4).map(lambda t: [TextDelta(x) for x in t]),
    st.lists(TEXTS, min_size=1, max_size=4).map(lambda t: [ReasoningDelta(x) for x in t]),
    st.tuples(TEXTS.filter(bool), st.lists(TEXTS, max_size=4)),
)


def as_events(parts: list[Any]) -> list[GenerationEvent]:
    events: list[GenerationEvent] = []
    calls = 0
    for part in parts:
        if isinstance(part, tuple):
            name, arguments = cast("tuple[str, list[str]]", part)
            events += call(calls, name, *arguments)
            calls += 1
        else:
            events += part
    return events


def test_stream_and_whole_answer_agree(saying: Callable[..., Any], read_chunks: ReadChunks) -> None:
    @given(st.lists(PARTS, max_size=5), st.sampled_from(FinishReason))
    @settings(deadline=None)
    def agree(parts: list[Any], reason: FinishReason) -> None:
        events = (ACCEPTED, *as_events(parts), finished(reason))

        def say(_: GenerationRequest) -> Sequence[GenerationEvent]:
            return events

        chat = saying(say)
        answer = chat.ask(BODY).json()
        streamed = folded(read_chunks(chat.ask(STREAM).text))
        assert streamed == {0: whole(answer["choices"][0])}

    agree()


def test_a_chunk_costs_less_than_twenty_microseconds(wire: Wire) -> None:
    from pegboard_routes._chat_response import Chunks, Identity  # noqa: PLC0415 - no other door

    del wire
    chunks = Chunks(Identity("i", 1, "m", "f"), 0, include_usage=True, logprobs=False)
    event = TextDelta(" token")
    rounds: list[float] = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(2000):
            chunks.chunk(event)
        rounds.append((time.process_time() - begun) / 2000)
    assert min(rounds) < 20e-6
