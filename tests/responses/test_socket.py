"""The Responses API over a WebSocket."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openai import OpenAI
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.responses.api import Api, Serve

TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")


@contextmanager
def opened(api: Api, path: str = "/v1/responses") -> Generator[ClientConnection]:
    with connect(api.url.replace("http", "ws") + path) as socket:
        yield socket


def ask(socket: ClientConnection, **body: object) -> list[dict[str, Any]]:
    socket.send(json.dumps({"type": "response.create", "model": "scripted", **body}))
    return rest(socket)


def rest(socket: ClientConnection) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] not in TERMINAL:
        events.append(json.loads(socket.recv(timeout=30)))
    return events


def test_creates_are_answered_one_after_the_other(api: Api) -> None:
    with opened(api) as socket:
        for text in ("one", "two"):
            body = {"type": "response.create", "model": "scripted", "input": text}
            socket.send(json.dumps({**body, "stream": True}))
        first, second = rest(socket), rest(socket)
    for events, text in ((first, "one"), (second, "two")):
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        final = events[-1]["response"]
        assert final["output"][0]["content"][0]["text"] == text
        assert api.get(final["id"]) == final


def test_what_is_not_stored_chains_on_its_connection_alone(api: Api) -> None:
    with opened(api, "/responses") as socket:
        first = ask(socket, input="only-here", store=False)[-1]["response"]
        second = ask(socket, input="next", store=False, previous_response_id=first["id"])
        assert second[-1]["type"] == "response.completed"
        assert "only-here" in api.prompts()[-1]
    with opened(api) as socket:
        (error,) = ask(socket, input="next", previous_response_id=first["id"])
        assert (error["status"], error["error"]["code"]) == (400, "previous_response_not_found")
        assert ask(socket, input="still open")[-1]["type"] == "response.completed"


def test_a_warm_up_generates_nothing(api: Api) -> None:
    before = len(api.prompts())
    with opened(api) as socket:
        events = ask(socket, generate=False, input=[{"role": "developer", "content": "be-kind"}])
        assert [event["type"] for event in events] == [
            "response.created",
            "response.in_progress",
            "response.completed",
        ]
        assert events[-1]["response"]["output"] == []
        assert len(api.prompts()) == before
        ask(socket, input="go", previous_response_id=events[-1]["response"]["id"])
    assert "be-kind" in api.prompts()[-1]


def test_bad_frames_are_told_and_the_connection_stays(api: Api) -> None:
    with opened(api) as socket:
        deep = '{"type":"response.create","metadata":' + '{"a":' * 3000 + "1" + "}" * 3001
        for frame in (deep, "{", "[]", '{"type":"response.steer"}', '{"type":"response.create"}'):
            socket.send(frame)
            (error,) = rest(socket)
            assert error["status"] == 400
            assert error["error"]["code"]
            assert error["error"]["message"]
        (error,) = ask(socket, input="x", background=True)
        assert error["error"]["param"] == "background"
        (error,) = ask(socket, input="x", model="absent")
        assert error["status"] == 404
        assert ask(socket, input="fine")[-1]["type"] == "response.completed"


def test_a_client_that_leaves_stops_its_response(api: Api) -> None:
    with opened(api) as socket:
        body = {"type": "response.create", "model": "scripted", "input": "slow"}
        socket.send(json.dumps(body))
        response_id = json.loads(socket.recv(timeout=30))["response"]["id"]
        while json.loads(socket.recv(timeout=30))["type"] != "response.output_text.delta":
            pass
    while (left := api.get(response_id))["status"] == "in_progress":
        pass
    assert left["status"] == "incomplete"


def test_the_guard_stands_before_the_socket(serve: Serve) -> None:
    api = serve("--api-key", "secret")
    with pytest.raises(InvalidStatus, match="401"), opened(api):
        pass
    with connect(
        api.url.replace("http", "ws") + "/v1/responses",
        additional_headers={"Authorization": "Bearer secret"},
    ) as socket:
        assert ask(socket, input="hi")[-1]["type"] == "response.completed"


@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")  # the SDK's own use
def test_the_official_sdk_connects(api: Api) -> None:
    with (
        OpenAI(base_url=f"{api.url}/v1", api_key="x", max_retries=0) as client,
        client.responses.connect() as connection,
    ):
        connection.response.create(model="scripted", input="over the wire")
        kinds: list[str] = []
        for event in connection:
            kinds.append(event.type)
            if event.type == "response.completed":
                break
    assert kinds[0] == "response.created"
    assert httpx.get(f"{api.url}/v1/responses").status_code == 426
