"""Bodies that are not what they should be: always 4xx, quickly, and without an echo."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

Wire = Callable[..., Any]

GOOD: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "u"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "text"},
    "stream_options": {"include_usage": True},
    "stop": ["x"],
    "temperature": 0.5,
    "n": 2,
    "seed": 1,
    "chat_template_kwargs": {"a": [1]},
}
DEEP = 10_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"5",
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        b'{"model": "\xff"}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b"[" * DEEP,
        b'{"a":' * DEEP,
        b'{"model": "m", "messages": ' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"model": "m", "messages": [], "seed": ' + b"9" * 100_000 + b"}",
        b"{'model': 'm'}",
        b'{"model": "m"} trailing',
    ],
)
def test_edge_97_what_is_no_json_object_is_refused_quickly(wire: Wire, body: bytes) -> None:
    chat = wire()
    begun = time.monotonic()
    response = chat.ask(body)
    assert time.monotonic() - begun < 2
    assert response.status_code == 422
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert wire(schema_status=400).ask(body).status_code == 400


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400])
@pytest.mark.parametrize(
    "name", ["temperature", "top_p", "seed", "max_tokens", "frequency_penalty"]
)
def test_edge_97_numbers_beyond_numbers_are_refused(wire: Wire, name: str, number: str) -> None:
    body = json.dumps(GOOD | {name: 0}).replace(f'"{name}": 0', f'"{name}": {number}')
    response = wire().ask(body.encode())
    assert (response.status_code, response.json()["error"]["param"]) == (422, name)


@pytest.mark.parametrize("number", ["NaN", "1e999", "9" * 400])
def test_numbers_that_cannot_cross_to_another_process_are_refused(wire: Wire, number: str) -> None:
    for path in ("chat_template_kwargs", "tools.0.function.parameters"):
        body = json.loads(json.dumps(GOOD))
        *steps, last = path.split(".")
        holder: Any = body
        for step in steps:
            holder = holder[int(step)] if step.isdigit() else holder[step]
        holder[last] = {"x": ["HERE"]}
        response = wire().ask(json.dumps(body).replace('"HERE"', number).encode())
        assert (response.status_code, response.json()["error"]["param"]) == (422, path)


def test_edge_97_duplicate_keys_and_lone_strings_of_any_size_do_no_harm(wire: Wire) -> None:
    body = b'{"model": "a", "model": "m", "messages": [{"role": "user", "content": "hi"}]}'
    chat = wire()
    assert chat.ask(body).status_code == 200
    assert chat.generator.requests[0].model == "m"
    assert wire().ask(GOOD | {"\u0000" * 5000: 1, "user": "x" * 100_000}).status_code == 200


def test_nothing_rejected_is_echoed(wire: Wire) -> None:
    leak = "data:image/png;base64,SECRET"
    for fields in (
        {"messages": [{"role": leak, "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": leak}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": [leak]}]}]},
        {"temperature": leak},
        {"tool_choice": leak},
        {"tools": [{"type": leak}]},
        {"stop": {"a": leak}},
        {"messages": [leak]},
    ):
        response = wire().ask(GOOD | fields)
        assert response.status_code in {400, 422}
        assert "SECRET" not in response.text


ODD: list[Any] = [None, True, -1, 2**70, 0.5, "", "x", "\ud83d", [], {}, [None], {"a": {}}, [[]]]


def mutated(random_: random.Random, value: Any) -> Any:
    """Damage one place of a body."""
    if random_.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return random_.choice(ODD)
    copy: Any = json.loads(json.dumps(value))
    key = random_.choice(list(copy) if isinstance(value, dict) else range(len(copy)))
    fate = random_.random()
    if fate < 0.15:
        del copy[key]
    elif fate < 0.3 and isinstance(value, list):
        copy.append(random_.choice(ODD))
    else:
        copy[key] = mutated(random_, copy[key])
    return copy


def test_a_thousand_damaged_bodies_never_fail_the_server(wire: Wire) -> None:
    random_ = random.Random(20)  # noqa: S311 - reproducible damage
    chat = wire()
    statuses: set[int] = set()
    for _ in range(1000):
        body: Any = GOOD
        for _ in range(random_.randint(1, 3)):
            body = mutated(random_, body)
        raw = json.dumps(body).encode()
        if random_.random() < 0.2:
            cut = random_.randrange(len(raw) + 1)
            raw = raw[:cut] + bytes([random_.randrange(256)]) + raw[cut + 1 :]
        response = chat.ask(raw)
        statuses.add(response.status_code)
        assert response.status_code in {200, 400, 422, 501}, (response.status_code, raw)
        if response.status_code != 200:
            assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert {200, 422} <= statuses
