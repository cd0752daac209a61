"""A real server's edges: ids, envelopes, keys, limits, bodies and probes."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

ScriptedServer = Callable[..., str]
StartServer = Callable[..., Any]

SCRIPT: dict[str, Any] = {
    "tool_format": "hermes",
    "rules": [{"match": "^long", "pieces": ["word "], "repeat": 100_000}],
    "default": {"echo": True},
}
BODY: dict[str, Any] = {
    "model": "scripted",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "u"}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": "v"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "stop": ["x"],
    "temperature": 0.5,
    "max_tokens": 4,
    "seed": 1,
    "chat_template_kwargs": {"a": [1]},
}
CHAT = "/v1/chat/completions"


@pytest.fixture
def url(scripted_server: ScriptedServer) -> str:
    return scripted_server(SCRIPT, "--max-request-body-mb", "1")


@pytest.fixture
def keyed(scripted_server: ScriptedServer) -> str:
    return scripted_server(SCRIPT, "--api-key", "key-a", "--api-key", "key-b")


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_every_answer_carries_its_id(url: str) -> None:
    stream = BODY | {"stream": True}
    answers = [
        httpx.get(f"{url}/v1/models", headers={"x-request-id": "mine-1"}),
        httpx.get(f"{url}/nope", headers={"x-request-id": "mine-1"}),
        httpx.put(f"{url}/v1/models", headers={"x-request-id": "mine-1"}),
        httpx.post(f"{url}{CHAT}", content=b"{", headers={"x-request-id": "mine-1"}),
        httpx.post(f"{url}{CHAT}", json=stream, headers={"x-request-id": "mine-1"}),
        httpx.post(f"{url}{CHAT}", content=b"x" * 2**21, headers={"x-request-id": "mine-1"}),
        httpx.get(f"{url}/v1/models", headers={"host": "evil.example", "x-request-id": "mine-1"}),
    ]
    assert [a.status_code for a in answers] == [200, 404, 405, 422, 200, 413, 403]
    assert [a.headers["x-request-id"] for a in answers] == ["mine-1"] * len(answers)
    unsafe = httpx.get(f"{url}/v1/models", headers={"x-request-id": "a b"})
    assert unsafe.headers["x-request-id"].startswith("req-")


def test_c95_unknown_urls_and_wrong_methods_are_json(url: str) -> None:
    for method, path, status in (
        ("GET", "/nope", 404),
        ("GET", "/", 404),
        ("PUT", "/v1/models", 405),
        ("GET", CHAT, 405),
        ("POST", "/v1/models/scripted", 405),
        ("GET", "/v1/%00", 404),
    ):
        response = httpx.request(method, f"{url}{path}")
        assert response.status_code == status, path
        error_of(response)
        assert ("allow" in response.headers) == (status == 405)


def test_bodies_above_the_limit_are_refused_declared_or_in_chunks(url: str) -> None:
    def chunks() -> Any:
        yield from [b" " * 2**19] * 3

    for content in (b" " * (2**20 + 1), chunks()):
        response = httpx.post(f"{url}{CHAT}", content=content)
        assert (response.status_code, error_of(response)["code"]) == (413, "request_too_large")
    padded = json.dumps(BODY).encode().ljust(2**20)
    assert httpx.post(f"{url}{CHAT}", content=padded).status_code == 200


def raw(url: str, request: bytes) -> bytes:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while data := connection.recv(65536):
            received += data
    return received


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/models HTTP/1.0\r\n\r\n",
        b"BREW /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_malformed_requests_are_the_clients_fault(url: str, request_: bytes) -> None:
    head, _, body = raw(url, request_).partition(b"\r\n\r\n")
    assert head.split(b" ", 2)[1] in {b"400", b"403"}
    assert b"\r\nx-request-id: req-" in head.lower()
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert httpx.get(f"{url}/health/live").status_code == 200


def test_keys_guard_everything_but_health(keyed: str) -> None:
    for path in ("/v1/models", "/openapi.json", "/nope", "/debug/scripted/scripted"):
        response = httpx.get(f"{keyed}{path}")
        assert (response.status_code, error_of(response)["code"]) == (401, "invalid_api_key")
        assert response.headers["www-authenticate"] == "Bearer"
    assert httpx.get(f"{keyed}/v1/models?api_key=key-a").status_code == 401
    for path in ("/health", "/health/live", "/health/ready"):
        assert httpx.get(f"{keyed}{path}").status_code == 200
    for key in ("key-a", "key-b"):
        bearer = {"authorization": f"Bearer {key}"}
        assert httpx.get(f"{keyed}/v1/models", headers=bearer).status_code == 200
        assert httpx.post(f"{keyed}{CHAT}", json=BODY, headers=bearer).status_code == 200


def test_browsers_of_other_origins_are_refused(url: str) -> None:
    evil = {"origin": "http://evil.example"}
    for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("GET", "/health")):
        response = httpx.request(method, f"{url}{path}", headers=evil)
        assert (response.status_code, error_of(response)["code"]) == (403, "origin_not_allowed")
    assert httpx.get(f"{url}/v1/models", headers={"origin": url}).status_code == 200
    spoofed = {"x-forwarded-for": "8.8.8.8"}
    assert httpx.get(f"{url}/v1/models", headers=spoofed).status_code == 200


def outward_address() -> str:
    """Return this machine's own address on some network; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        return str(probe.getsockname()[0])


def test_an_open_bind_without_a_key_warns_and_answers_this_machine_alone(
    start_server: StartServer,
) -> None:
    server = start_server("--host", "0.0.0.0", script=SCRIPT)  # noqa: S104 - the point
    port = server.url.rpartition(":")[2]
    assert "without an API key" in server.log()
    outside = f"http://{outward_address()}:{port}"
    for method, path in (("GET", "/health/live"), ("POST", CHAT), ("GET", "/nope")):
        response = httpx.request(method, f"{outside}{path}", content=b"{")
        assert (response.status_code, error_of(response)["code"]) == (
            403,
            "network_access_denied",
        )
    assert httpx.get(f"http://127.0.0.1:{port}/v1/models").status_code == 200


def test_with_a_key_other_machines_are_answered(start_server: StartServer) -> None:
    server = start_server("--host", "0.0.0.0", "--api-key", "k", script=SCRIPT)  # noqa: S104
    port = server.url.rpartition(":")[2]
    outside = f"http://{outward_address()}:{port}"
    bearer = {"authorization": "Bearer k"}
    assert httpx.get(f"{outside}/health").status_code == 401
    assert httpx.get(f"{outside}/health", headers=bearer).status_code == 200
    assert httpx.post(f"{outside}{CHAT}", json=BODY, headers=bearer).status_code == 200
    named = bearer | {"host": "evil.example"}
    assert httpx.get(f"{outside}/health", headers=named).status_code == 403
    assert "without an API key" not in server.log()


def mutated(random_: random.Random, value: Any) -> Any:
    odd: list[Any] = [None, True, -1, 2**70, 0.5, "", "x", "\ud83d", [], {}, [None], [[]]]
    if random_.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return random_.choice(odd)
    copy: Any = json.loads(json.dumps(value))
    key = random_.choice(list(copy) if isinstance(value, dict) else range(len(copy)))
    if random_.random() < 0.2:
        del copy[key]
    else:
        copy[key] = mutated(random_, copy[key])
    return copy


def test_a_thousand_damaged_bodies_never_fail_the_server(url: str) -> None:
    random_ = random.Random(7)  # noqa: S311 - reproducible damage
    statuses: set[int] = set()
    with httpx.Client(base_url=url, timeout=30) as client:
        for _ in range(1000):
            body: Any = BODY
            for _ in range(random_.randint(1, 3)):
                body = mutated(random_, body)
            sent = json.dumps(body).encode()
            if random_.random() < 0.2:
                cut = random_.randrange(len(sent) + 1)
                sent = sent[:cut] + bytes([random_.randrange(256)]) + sent[cut + 1 :]
            response = client.post(CHAT, content=sent)
            statuses.add(response.status_code)
            assert response.status_code in {200, 400, 404, 422, 501}, (response.text, sent)
            if response.status_code != 200:
                error_of(response)
    assert {200, 422} <= statuses


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "only"}],
        [{"role": "assistant", "content": "only"}],
        [{"role": "tool", "content": "only", "tool_call_id": "c"}],
        [{"role": "user", "content": "a"}, {"role": "developer", "content": "b"}],
        [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": "\u0000\ufffe<|im_end|>"}],
    ],
)
def test_odd_conversations_are_answered(url: str, messages: list[dict[str, Any]]) -> None:
    response = httpx.post(f"{url}{CHAT}", json={"model": "scripted", "messages": messages})
    assert response.status_code == 200, response.text


def test_c80_a_request_that_is_refused_anyway_loads_nothing(
    start_server: StartServer, tmp_path: Path
) -> None:
    script, catalog = tmp_path / "lazy.json", tmp_path / "models.json"
    script.write_text(json.dumps(SCRIPT))
    entry = {"id": "lazy", "source_model": f"scripted:{script}", "backend": "scripted"}
    catalog.write_text(json.dumps({"schema_version": 1, "models": [entry]}))
    url = start_server("--autoload", "--catalog", str(catalog)).url
    lazy = BODY | {"model": "lazy"}
    refused: list[tuple[dict[str, Any], int]] = [
        (lazy | {"messages": []}, 422),
        (lazy | {"logit_bias": {"1": 1}}, 501),
        (lazy | {"tool_choice": {"type": "function", "name": "nobody"}}, 400),
        (BODY | {"model": "other"}, 404),
    ]
    before = httpx.get(f"{url}/v1/models/lazy").json()
    assert before["status"] != "loaded"
    for body, status in refused:
        begun = time.monotonic()
        assert httpx.post(f"{url}{CHAT}", json=body).status_code == status
        assert time.monotonic() - begun < 1
        assert httpx.get(f"{url}/v1/models/lazy").json() == before
    assert httpx.post(f"{url}{CHAT}", json=lazy, timeout=60).status_code == 200
    assert httpx.get(f"{url}/v1/models/lazy").json()["status"] == "loaded"


def test_c84_probes_answer_while_big_prompts_are_prepared(url: str) -> None:
    big = BODY | {"messages": [{"role": "user", "content": "word " * 190_000}]}
    threads = [
        threading.Thread(
            target=httpx.post, args=(f"{url}{CHAT}",), kwargs={"json": big, "timeout": 60}
        )
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    waits: list[float] = []
    with httpx.Client(base_url=url, timeout=60) as client:
        while any(thread.is_alive() for thread in threads) or len(waits) < 20:
            begun = time.monotonic()
            assert client.get("/health/live").status_code == 200
            assert client.get("/health/ready").status_code == 200
            waits.append(time.monotonic() - begun)
    assert sorted(waits)[int(len(waits) * 0.99) - 1] < 1


@pytest.mark.slow
def test_c92_clients_that_stop_reading_hold_up_nobody(scripted_server: ScriptedServer) -> None:
    url = scripted_server(SCRIPT | {"context_tokens": 200_000})
    host, port = url.removeprefix("http://").split(":")
    sent = json.dumps(
        {
            "model": "scripted",
            "messages": [{"role": "user", "content": "long"}],
            "stream": True,
            "max_tokens": 20_000,
        }
    ).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(sent)}\r\n\r\n"
    stalled: list[socket.socket] = []
    try:
        for _ in range(20):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((host, int(port)))
            connection.sendall(head.encode() + sent)
            assert connection.recv(1024).startswith(b"HTTP/1.1 200")
            stalled.append(connection)
        normal = httpx.post(f"{url}{CHAT}", json=BODY, timeout=60)
        assert normal.status_code == 200
    finally:
        for connection in stalled:
            connection.close()


def test_c38_a_stream_that_outlives_the_drain_ends_with_an_error(start_server: StartServer) -> None:
    rules = [{"match": "slow", "pieces": ["w "], "repeat": 10_000, "delay_ms": 20}]
    server = start_server("--drain-timeout", "1", script={"rules": rules})
    body = {
        "model": "scripted",
        "stream": True,
        "messages": [{"role": "user", "content": "slow"}],
    }
    with httpx.stream("POST", f"{server.url}{CHAT}", json=body, timeout=30) as response:
        lines = response.iter_lines()
        next(lines)
        server.process.terminate()
        frames = [line for line in lines if line.startswith("data: ")]
    assert frames[-1] == "data: [DONE]"
    assert frames.count("data: [DONE]") == 1
    assert set(json.loads(frames[-2].removeprefix("data: "))) == {"error"}
    assert server.stop() == 0
