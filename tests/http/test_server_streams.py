"""Streams of a real server: agreement, isolation, silence, faults, and clients that vanish."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

ScriptedServer = Callable[..., str]
ReadChunks = Callable[[str], list[dict[str, Any]]]

SCRIPT: dict[str, Any] = {
    "tool_format": "hermes",
    "reasoning_format": "think_tags",
    "context_tokens": 200_000,
    "rules": [
        {"match": "^boom", "pieces": ["a", "b", "c"], "raise_after": 2},
        {"match": "^late", "pieces": ["a", "b"], "first_delay_ms": 700},
        {"match": "^slow", "pieces": ["w "], "repeat": 10_000, "delay_ms": 20},
        {"match": "^never", "pieces": ["a"], "first_delay_ms": 600_000},
        {"match": "^fox", "pieces": ["The quick br", "own f", "ox jumps"]},
        {"match": "^act", "pieces": ["The quick br", "own f", "act"]},
        {"match": "^user", "pieces": ["hi\nUs", "er: no"]},
        {"match": "^tail", "pieces": ["<think>x</thi", "nk>do", "ne ZZZZZZZ"]},
        {"match": "^emoji", "pieces": [{"bytes": "f09f"}, {"bytes": "9880"}, "!"]},
    ],
    "default": {"echo": True},
}
TOOLS: Any = [{"type": "function", "function": {"name": "f"}}]


def body(text: str, **fields: object) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], **fields}


@pytest.fixture
def url(scripted_server: ScriptedServer) -> str:
    return scripted_server(SCRIPT, "--keepalive-interval", "0.2")


def post(url: str, sent: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json=sent, timeout=60)


def text_of(chunks: list[dict[str, Any]], key: str = "content") -> str:
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get(key) or "" for delta in deltas)


def calls_of(chunks: list[dict[str, Any]]) -> list[list[str]]:
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for part in choice["delta"].get("tool_calls", []):
                call = calls.setdefault(part["index"], ["", ""])
                call[0] += part["function"].get("name", "")
                call[1] += part["function"].get("arguments", "")
    return [calls[index] for index in sorted(calls)]


def finish_of(chunks: list[dict[str, Any]]) -> str:
    reasons = [c["finish_reason"] for chunk in chunks for c in chunk["choices"]]
    [reason] = [reason for reason in reasons if reason]
    return str(reason)


FRAGMENTS = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        '{"name": "f", "arguments": {"a": "x y"}}',
        '{"name": "g"',
        "<tool_call>\n",
        "word ",
        " \n",
        "é😀",
        "<",
        "STOP",
        "ST",
    ]
)


def test_stream_and_whole_answer_agree_whatever_the_model_says(
    url: str, read_chunks: ReadChunks
) -> None:
    with httpx.Client(base_url=url, timeout=60) as client:

        @example(['<tool_call>{"name": "f", "arguments": {"a": "b c"}}</tool_call>'], True, 12)
        @example(["<think>", "word ", "</think>", "word ", "STOP"], False, 12)
        @given(st.lists(FRAGMENTS, min_size=1, max_size=10), st.booleans(), st.integers(1, 12))
        @settings(deadline=None, max_examples=150)
        def agree(fragments: list[str], tools: bool, limit: int) -> None:
            sent = body("".join(["say ", *fragments]), max_tokens=limit, stop=["STOP"])
            sent |= {"tools": TOOLS} if tools else {}
            whole = client.post("/v1/chat/completions", json=sent).json()
            options = {"stream": True, "stream_options": {"include_usage": True}}
            streamed = client.post("/v1/chat/completions", json=sent | options)
            chunks = read_chunks(streamed.text)
            message = whole["choices"][0]["message"]
            assert text_of(chunks) == (message["content"] or "")
            assert text_of(chunks, "reasoning_content") == message.get("reasoning_content", "")
            assert calls_of(chunks) == [
                [c["function"]["name"], c["function"]["arguments"]]
                for c in message.get("tool_calls", [])
            ]
            assert finish_of(chunks) == whole["choices"][0]["finish_reason"]
            counted = ("prompt_tokens", "completion_tokens", "completion_tokens_details")
            assert {k: chunks[-1]["usage"][k] for k in counted} == {
                k: whole["usage"][k] for k in counted
            }

        agree()


def test_32_streams_at_once_never_mix(url: str, read_chunks: ReadChunks) -> None:
    async def go() -> None:
        limits = httpx.Limits(max_connections=40)
        async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:

            async def one(number: int) -> None:
                said = " ".join(f"s{number}w{word}" for word in range(200))
                sent = body(said, stream=True)
                response = await client.post("/v1/chat/completions", json=sent)
                assert text_of(read_chunks(response.text)) == said

            await asyncio.gather(*[one(number) for number in range(32)])

    asyncio.run(go())


@pytest.mark.parametrize(
    ("said", "stop", "wanted", "reason"),
    [
        ("fox", ["own fox", "\nUser:"], "The quick br", "stop"),
        ("user", ["own fox", "\nUser:"], "hi", "stop"),
        ("act", ["own fox"], "The quick brown fact", "stop"),
        ("fox", ["The"], "", "stop"),
        ("fox", ["quick", "The quick"], "", "stop"),
    ],
)
def test_c29_stop_strings_straddle_pieces(  # noqa: PLR0917 - a row of the table
    url: str, read_chunks: ReadChunks, said: str, stop: list[str], wanted: str, reason: str
) -> None:
    whole = post(url, body(said, stop=stop)).json()["choices"][0]
    assert (whole["message"]["content"], whole["finish_reason"]) == (wanted, reason)
    chunks = read_chunks(post(url, body(said, stop=stop, stream=True)).text)
    assert (text_of(chunks), finish_of(chunks)) == (wanted, reason)


def test_c30_the_held_back_tail_goes_through_the_formats(url: str, read_chunks: ReadChunks) -> None:
    sent = body("tail", stop=["ZZZZZZZZ"], stream=True)
    chunks = read_chunks(post(url, sent).text)
    assert text_of(chunks) == "done ZZZZZZZ"
    assert text_of(chunks, "reasoning_content") == "x"


def test_no_character_is_ever_split(url: str, read_chunks: ReadChunks) -> None:
    chunks = read_chunks(post(url, body("emoji", stream=True)).text)
    assert text_of(chunks) == "😀!"
    assert all("�" not in json.dumps(chunk, ensure_ascii=False) for chunk in chunks)


def test_c33_silence_is_filled_with_comments(url: str, read_chunks: ReadChunks) -> None:
    begun = time.monotonic()
    with httpx.stream(
        "POST", f"{url}/v1/chat/completions", json=body("late", stream=True), timeout=60
    ) as response:
        headers_after = time.monotonic() - begun
        text = "".join(response.iter_text())
    assert headers_after < 0.6
    assert text.count(": keep-alive\n\n") >= 2
    frames = text.split("\n\n")
    assert all(f == "" or f.startswith(("data: ", ": keep-alive")) for f in frames)
    assert text_of(read_chunks(text)) == "ab"


def test_c34_a_fault_ends_its_stream_and_no_other(url: str, read_chunks: ReadChunks) -> None:
    async def go() -> list[str]:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            said = ["boom", *[f"other {n} words" for n in range(5)]]
            responses = await asyncio.gather(
                *[
                    client.post("/v1/chat/completions", json=body(text, stream=True))
                    for text in said
                ]
            )
        return [response.text for response in responses]

    broken, *others = asyncio.run(go())
    chunks = read_chunks(broken)
    assert text_of([c for c in chunks if "choices" in c]) == "ab"
    assert set(chunks[-1]["error"]) == {"message", "type", "param", "code"}
    assert [text_of(read_chunks(text)) for text in others] == [f"other {n} words" for n in range(5)]


def statuses(url: str, mark: str) -> list[str]:
    requests = httpx.get(f"{url}/debug/scripted/scripted").json()["requests"]
    return [request["status"] for request in requests if mark in request["prompt"]]


def wait_for(seen: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 20
    while not seen():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.mark.parametrize("lines", [0, 1, 5])
@pytest.mark.parametrize("n", [1, 2])
def test_a_client_that_leaves_a_stream_frees_the_engine(url: str, lines: int, n: int) -> None:
    mark = f"leaver-{lines}-{n}"
    sent = body(f"slow {mark}", stream=True, n=n)
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=sent, timeout=60) as response:
        read = response.iter_lines()
        for _ in range(lines):
            next(read)
    wait_for(lambda: statuses(url, mark) == ["cancelled"] * n, "the engine goes on")


@pytest.mark.parametrize("said", ["slow", "never"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_while_waiting_frees_the_engine(
    url: str, said: str, *, stream: bool
) -> None:
    mark = f"hanger-{said}-{stream}"
    with pytest.raises(httpx.ReadTimeout):  # noqa: PT012 - the stream is read inside
        timeout = httpx.Timeout(30, read=0.1 if stream else 0.4)
        sent = body(f"{said} {mark}", stream=stream)
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=sent, timeout=timeout) as r:
            for _ in r.iter_bytes():
                if said == "slow" and stream:
                    raise httpx.ReadTimeout(mark)
    wait_for(lambda: statuses(url, mark) == ["cancelled"], "the engine goes on")


def test_the_engine_is_free_after_many_leavers(url: str) -> None:
    async def go() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            sent = [body(f"never crowd-{n}", stream=n % 2 == 0) for n in range(40)]
            await asyncio.wait(
                [
                    asyncio.create_task(client.post("/v1/chat/completions", json=one))
                    for one in sent
                ],
                timeout=1,
            )

    asyncio.run(go())
    begun = time.monotonic()
    assert post(url, body("after the crowd")).json()["choices"][0]["message"]["content"] == (
        "after the crowd"
    )
    assert time.monotonic() - begun < 5
