"""The event stream and the state at one glance."""

from __future__ import annotations

import itertools
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.native.conftest import Json, MakeWire, Wire, frames, refusal

EVENTS = "/v1/system/events"


@pytest.fixture(scope="module")
def wire(make_wire: MakeWire) -> Wire:
    return make_wire(
        {"one": {}, "two": {"load_delay_ms": 300}}, "--keepalive-interval", "0.2", entries={}
    )


def until(events: Iterator[Json], state: str) -> list[Json]:
    """Read on to an event that tells of a state."""
    seen: list[Json] = []
    for event in events:
        seen.append(event)
        if event.get("event") == "state" and event["data"]["data"]["state"] == state:
            return seen
    raise AssertionError(f"the stream ended before {state}: {seen}")


def test_a_load_and_an_unload_are_told_in_order(wire: Wire) -> None:
    with wire.events() as events:
        assert next(events)["id"]
        wire.post("/v1/models/load", model="two")
        seen = until(events, "loaded")
        wire.post("/v1/models/unload", model="two")
        seen += until(events, "ready_to_load")
    states = [e["data"]["data"]["state"] for e in seen if e["event"] == "state"]
    assert states == ["loading", "loaded", "unloading", "ready_to_load"]
    assert {event["data"]["model"] for event in seen} == {"two"}
    revisions = [e["data"]["data"]["revision"] for e in seen]
    assert revisions == sorted(revisions)
    numbers = [int(event["id"].rpartition("-")[2]) for event in seen]
    assert numbers == sorted(set(numbers))
    for event in seen:
        assert event["id"] == event["data"]["id"]
        assert set(event["data"]) == {
            "id",
            "timestamp",
            "level",
            "type",
            "message",
            "model",
            "data",
        }


@pytest.mark.parametrize("how", ["header", "query"])
def test_who_connects_again_misses_nothing(wire: Wire, how: str) -> None:
    cursor = wire.get("/v1/system/status")["events_cursor"]
    wire.post("/v1/models/load", model="one")
    wire.wait("one", "loaded")
    given = {"last": cursor} if how == "header" else {"after": cursor}
    with wire.events(**given) as events:
        next(events)
        seen = until(events, "loaded")
    assert seen[0]["data"]["data"]["state"] == "loading"
    wire.unload("one")


def test_the_header_counts_more_than_the_url_it_began_with(wire: Wire) -> None:
    first = wire.get("/v1/system/status")["events_cursor"]
    wire.post("/v1/models/load", model="one")
    wire.wait("one", "loaded")
    last = wire.get("/v1/system/status")["events_cursor"]
    wire.unload("one")
    with wire.events(after=first, last=last) as events:
        next(events)
        assert until(events, "ready_to_load")[0]["data"]["data"]["state"] == "unloading"


@pytest.mark.parametrize("cursor", ["0123456789ab-4", "nonsense", "-1", "é", "9" * 128])
def test_edge_92_a_cursor_of_another_server_means_reading_again(wire: Wire, cursor: str) -> None:
    with wire.events(after=cursor) as events:
        next(events)
        event = next(events)
    assert event["event"] == "reset"
    assert event["data"]["data"] == {"reset_required": True}


def test_a_cursor_that_is_too_long_is_refused(wire: Wire) -> None:
    refusal(wire.client.get(EVENTS, params={"after": "x" * 129}), 422, "invalid_value")


def test_edge_96_silence_is_broken_by_comments_that_no_proxy_keeps_back(wire: Wire) -> None:
    with wire.client.stream("GET", EVENTS) as answer:
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        lines = [line for line in itertools.islice(answer.iter_lines(), 12) if line]
    assert lines[0] == "retry: 2000"
    assert lines.count(": keep-alive") >= 3


def stream_status(wire: Wire) -> int:
    with wire.client.stream("GET", EVENTS) as answer:
        return answer.status_code


def test_a_stream_that_is_left_holds_nothing(wire: Wire) -> None:
    with ExitStack() as stack:
        limits = httpx.Limits(max_connections=100)
        client = stack.enter_context(
            httpx.Client(base_url=wire.server.url, timeout=30, limits=limits)
        )
        opened = [stack.enter_context(client.stream("GET", EVENTS)) for _ in range(64)]
        assert {answer.status_code for answer in opened} == {200}
        # A reader that is forgotten closes its stream.
        readers = [frames(answer.iter_lines()) for answer in opened]
        assert all(next(reader)["id"] for reader in readers)
        refused = client.get(EVENTS)
        error = refusal(refused, 503, "too_many_streams")
        assert refused.headers["retry-after"]
        assert "/v1/system/status" in error["message"]
    end = time.monotonic() + 20
    while stream_status(wire) != 200:
        assert time.monotonic() < end, "the streams that were left are still counted"


def test_a_server_that_stops_ends_its_streams(make_wire: MakeWire) -> None:
    wire = make_wire({"one": {}})
    with wire.client.stream("GET", EVENTS) as answer:
        lines = answer.iter_lines()
        next(lines)
        began = time.monotonic()
        assert wire.server.stop() == 0
        # Not the whole time that running answers are given.
        assert time.monotonic() - began < 8
        assert not [line for line in lines if line.startswith("event")]


def test_the_system_status_shows_models_counters_and_events(wire: Wire) -> None:
    status = wire.get("/v1/system/status")
    shown = wire.get("/v1/models/status")
    assert status["schema_version"] == 1
    assert status["models"] == shown["models"]
    assert status["device"] == shown["device"]
    assert status["uptime_seconds"] > 0
    assert set(status["metrics"]["per_model"]) == {"one", "two"}
    assert status["events"], "something happened here"
    assert len(status["events"]) <= 50
    assert status["events_cursor"] == status["events"][-1]["id"]
    assert str(wire.folder) not in wire.client.get("/v1/system/status").text


def test_answers_are_counted_by_model(make_wire: MakeWire) -> None:
    wire = make_wire({"one": {}, "two": {}}, entries={"one": {"autostart": True}})
    chat = {"model": "one", "messages": [{"role": "user", "content": "hi"}]}
    for _ in range(2):
        assert wire.client.post("/v1/chat/completions", json=chat).status_code == 200
    refused = wire.client.post("/v1/chat/completions", json=chat | {"model": "two"})
    assert refused.status_code == 409
    metrics = wire.get("/v1/system/status")["metrics"]
    assert metrics["requests"] == 2
    assert metrics["per_model"] == {"one": {"requests": 2}, "two": {"requests": 0}}


def test_health_is_ready_while_a_model_is_loaded(wire: Wire) -> None:
    wire.post("/v1/models/load", model="two")
    wire.wait("two", "loaded")
    assert wire.client.get("/health/ready").status_code == 200
    wire.unload("two")


def test_a_stream_over_a_socket_is_one_frame_an_event(wire: Wire) -> None:
    host, port = re.findall(r"//([^:]+):(\d+)", wire.server.url)[0]
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(f"GET {EVENTS} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        head = b""
        while b"\n\n" not in head:
            head += connection.recv(4096)
    assert b"\r\ncontent-type: text/event-stream; charset=utf-8\r\n" in head
    assert b"retry: 2000\nid: " in head
