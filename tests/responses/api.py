"""The Responses API over HTTP, for its tests: a model that says what an input asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

Json = dict[str, Any]
Serve = Callable[..., "Api"]
StartServer = Callable[..., Any]
"""Start a server of a test's own; returns what has `url` and `stop`."""

SUMMARY_MATCH = "Summarize the conversation so far"
SCRIPT: dict[str, Any] = {
    "context_tokens": 2000,
    "tool_format": "hermes",
    "reasoning_format": "think_tags",
    "rules": [
        {"match": SUMMARY_MATCH, "pieces": ["The", " code", " is", " 4711."]},
        {
            "match": "weather",
            "pieces": [
                "<think>",
                "which ",
                "city",
                "</think>",
                "Let me look. ",
                "<tool_call>",
                '\n{"name": "get_weather", "arguments": {"city": ',
                '"Par',
                'is"}}',
                "\n</tool_call>",
            ],
        },
        {
            "match": "twice",
            "pieces": [
                '<tool_call>{"name": "get_weather", "arguments": {"city": "A"}}</tool_call>',
                '\n<tool_call>{"name": "get_weather", "arguments": {"city": "B"}}</tool_call>',
            ],
        },
        {"match": "think", "pieces": ["<think>", "a ", "b ", "</think>", "\n\n", "done"]},
        {"match": "boom", "pieces": ["a ", "b ", "c "], "raise_after": 2},
        {"match": "slow", "pieces": ["x "], "repeat": 400, "delay_ms": 25},
        {"match": "essay", "pieces": ["word "], "repeat": 64},
    ],
    "default": {"echo": True},
}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@dataclass
class Event:
    """Hold one event of a stream."""

    name: str
    data: dict[str, Any]


@dataclass
class Api:
    """Ask one server."""

    url: str
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.url, timeout=60)

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.http.post(path, json=body)

    def create(self, **body: object) -> Json:
        response = self.post("/v1/responses", model="scripted", **body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def refused(self, path: str = "/v1/responses", /, **body: object) -> tuple[int, dict[str, Any]]:
        response = self.post(path, **{"model": "scripted", **body})
        error: dict[str, Any] = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return response.status_code, error

    def get(self, response_id: str, **query: str | int) -> dict[str, Any]:
        response = self.http.get(f"/v1/responses/{response_id}", params=query)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def status(self, response_id: str) -> int:
        return self.http.get(f"/v1/responses/{response_id}").status_code

    def stream(self, **body: object) -> list[Event]:
        response = self.post("/v1/responses", model="scripted", stream=True, **body)
        assert response.status_code == 200, response.text
        return events_of(response.text)

    def replay(self, response_id: str, **query: str | int) -> list[Event]:
        response = self.http.get(f"/v1/responses/{response_id}", params={"stream": "true", **query})
        assert response.status_code == 200, response.text
        return events_of(response.text)

    def ended(self, response_id: str) -> dict[str, Any]:
        """Poll until a job has ended."""
        while (answer := self.get(response_id))["status"] in ("queued", "in_progress"):
            assert answer["output"] == []
            assert answer["usage"]["total_tokens"] == 0
        return answer

    def prompts(self) -> list[str]:
        """Return the prompts the engine has seen, oldest first."""
        seen = self.http.get("/debug/scripted/scripted").json()["requests"]
        return [request["prompt"] for request in seen]


def events_of(text: str) -> list[Event]:
    """Read a stream that ends with its one marker, and check what holds for every stream."""
    frames = [frame for frame in text.split("\n\n") if not frame.startswith(":")]
    assert frames.pop() == ""
    assert frames.pop() == "data: [DONE]"
    events: list[Event] = []
    for frame in frames:
        name, data = frame.split("\n")
        event = Event(name.removeprefix("event: "), json.loads(data.removeprefix("data: ")))
        assert event.data["type"] == event.name
        events.append(event)
    return events


def text_of(response: dict[str, Any]) -> str:
    """Join the visible text of a response."""
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )
