"""From a request's fields to the constraint that the engine gets: over HTTP, scripted."""

from __future__ import annotations

import concurrent.futures
import json
import re
import time
from typing import Any

import httpx
import pytest

from tests.conftest import ScriptedServer, StartServer

SCRIPT: dict[str, Any] = {
    "tool_format": "hermes",
    "rules": [
        {
            "match": "call",
            "pieces": ['<tool_call>\n{"name": "f", ', '"arguments": {}}\n</tool_call>'],
        },
        {"match": "numbers", "pieces": ["[1, ", "2, ", "2]"]},
        {"match": "evil", "pieces": ["a" * 40]},
        {"match": "slow", "pieces": ["x "], "repeat": 400, "delay_ms": 20},
    ],
}
THOUGHTS = ["<think>", "\nhm", "\n</think>", "\n\n", '{"a"', ": 1}"]
THINKING: dict[str, Any] = {
    "tool_format": "hermes",
    "reasoning_format": "think_tags",
    "rules": [
        {"match": "think", "pieces": THOUGHTS},
        {"match": "in one", "pieces": ["<think>hm</think>{", '"a": 1}']},
        {"match": "never", "pieces": ["<think>", "hm"]},
        {"match": "plain", "pieces": ["  ", '{"a": 1}']},
    ],
}
PRIMED = {
    **THINKING,
    "prompt_suffix": "<think>\n",
    "rules": [{"match": "primed", "pieces": ["hm", "</think>", '{"a": 1}']}],
}
OBJECT = {"response_format": {"type": "json_object"}}
F: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object"}},
}
STRICT_F: dict[str, Any] = {"type": "function", "function": {**F["function"], "strict": True}}


class Server:
    """Ask a scripted server, and read what its engine was given."""

    def __init__(self, url: str) -> None:
        self.url = url

    def post(self, question: str, **fields: Any) -> httpx.Response:
        body = {"model": "scripted", "messages": [{"role": "user", "content": question}], **fields}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=60)

    def ask(self, question: str, **fields: Any) -> dict[str, Any]:
        response = self.post(question, **fields)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()["choices"][0]
        return found

    def refusal(self, question: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        response = self.post(question, **fields)
        return response.status_code, response.json()["error"]

    def constraints(self, last: int) -> list[str | None]:
        log = httpx.get(f"{self.url}/debug/scripted/scripted").json()["requests"]
        return [one["constraint"] and one["constraint"]["value"] for one in log[-last:]]


@pytest.fixture
def server(scripted_server: ScriptedServer) -> Server:
    return Server(scripted_server(SCRIPT))


@pytest.fixture
def thinking(scripted_server: ScriptedServer) -> Server:
    return Server(scripted_server(THINKING))


def schema_format(schema: object, *, strict: bool = True) -> dict[str, Any]:
    inner = {"name": "s", "strict": strict, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": inner}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"guided_choice": ["a", "b"]}, r'root ::= "a" \| "b"'),
        ({"guided_regex": "ab"}, r'root ::= \(?"a'),
        ({"guided_grammar": 'root ::= "q"'}, 'root ::= "q"'),
        ({"structured_outputs": {"json": {"const": 7}}}, 'root ::= .*"7"'),
        (schema_format({"const": 7}), 'root ::= .*"7"'),
        (OBJECT, "json_object"),
        ({"tools": [F], "tool_choice": "required"}, "<tool_call>"),
        ({"tools": [STRICT_F]}, "triggered_tags"),
        ({"tools": [F], **OBJECT}, "form0_root.*form1_root"),
    ],
)
def test_the_engine_gets_the_constraint(
    server: Server, fields: dict[str, Any], expected: str
) -> None:
    server.ask("call", **fields)
    (constraint,) = server.constraints(1)
    assert constraint is not None
    assert re.search(expected, constraint)


def test_nothing_is_bound_without_a_wish(server: Server) -> None:
    server.ask("call", tools=[F])
    server.ask("call", response_format={"type": "text"})
    server.ask("call", tools=[STRICT_F], tool_choice="none")
    assert server.constraints(3) == [None, None, None]


def test_a_block_that_the_model_opens_stays_free(thinking: Server) -> None:
    choice = thinking.ask("think", **OBJECT)
    assert choice["message"]["content"].strip() == '{"a": 1}'
    assert choice["message"]["reasoning_content"] == "hm"
    first, second = thinking.constraints(2)
    assert first is None
    assert second is not None


def test_text_behind_the_closing_marker_is_written_again(thinking: Server) -> None:
    choice = thinking.ask("in one", **OBJECT)
    assert choice["message"]["content"] == '{"a": 1}'
    assert thinking.constraints(2)[0] is None


def test_a_block_that_is_never_closed_is_closed_for_the_answer(thinking: Server) -> None:
    choice = thinking.ask("never", **OBJECT)
    assert choice["message"]["reasoning_content"] == "hm"
    assert thinking.constraints(2)[1] is not None


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_does_not_think_is_bound_from_its_first_word(
    thinking: Server, stream: bool
) -> None:
    response = thinking.post("plain", stream=stream, **OBJECT)
    assert response.text.count('{\\"a\\": 1}') == 1
    first, second = thinking.constraints(2)
    assert first is None
    assert second is not None


def test_a_primed_prompt_binds_when_its_block_closes(scripted_server: ScriptedServer) -> None:
    primed = Server(scripted_server(PRIMED))
    assert primed.ask("primed", **OBJECT)["message"]["content"] == '{"a": 1}'
    first, second = primed.constraints(2)
    assert first is None
    assert second is not None


def test_a_budget_of_nothing_binds_at_once(scripted_server: ScriptedServer) -> None:
    primed = Server(scripted_server(PRIMED))
    primed.ask("primed", thinking_budget_tokens=0, **OBJECT)
    assert primed.constraints(1)[0] is not None


UNIQUE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_not_enforced_is_checked_and_told(server: Server, stream: bool) -> None:
    response = server.post("numbers", stream=stream, **schema_format(UNIQUE, strict=False))
    assert "the answer breaks 'uniqueItems'" in response.text
    kept = server.post("numbers", stream=stream, **schema_format({"type": "array"}, strict=False))
    assert "unmet" not in kept.text


def test_strict_names_what_is_not_enforced(server: Server) -> None:
    status, error = server.refusal("numbers", **schema_format({"items": UNIQUE}))
    assert (status, error["code"]) == (400, "unsupported_schema")
    assert "items.uniqueItems" in error["message"]


def test_annotations_of_openapi_are_none_of_a_grammar_s_business(server: Server) -> None:
    told = {"x-order": 1, "example": 7, "xml": {"name": "n"}, "externalDocs": {"url": "https://x"}}
    schema = {"type": "integer", "minimum": 7, "maximum": 7, **told}
    server.ask("call", **schema_format(schema))
    (constraint,) = server.constraints(1)
    assert constraint is not None
    assert '"7"' in constraint
    status, error = server.refusal("call", **schema_format({**schema, "xy": 1}))
    assert (status, "'xy'" in error["message"]) == (400, True)


def test_a_pattern_that_takes_for_ever_to_check_harms_nobody(server: Server) -> None:
    schema: Any = {"type": "array", "uniqueItems": True, "items": {"type": "string"}}
    evil: dict[str, Any] = {}
    evil["anyOf"] = [schema, {"type": "string", "pattern": "^(a+)+$", "not": evil.copy()}]
    begun = time.monotonic()
    server.ask("evil", **schema_format(evil, strict=False))
    assert time.monotonic() - begun < 30
    assert server.ask("numbers")["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [F], "tool_choice": "required", "guided_regex": "a"}, "tool_choice"),
        ({"ignore_eos": True, "guided_regex": "a"}, "ignore_eos"),
        ({"ignore_eos": True, "tools": [F], "tool_choice": "required"}, "ignore_eos"),
        ({"ignore_eos": True, "tools": [STRICT_F]}, "ignore_eos"),
        ({"guided_regex": "("}, "guided_regex"),
        ({"guided_grammar": "a"}, "guided_grammar"),
    ],
)
def test_contradictions_are_refused(server: Server, fields: dict[str, Any], param: str) -> None:
    status, error = server.refusal("call", **fields)
    assert (status, error["param"]) == (400, param)


@pytest.mark.parametrize("stream", [False, True])
def test_a_forced_call_that_does_not_come_is_an_error(server: Server, stream: bool) -> None:
    response = server.post("numbers", tools=[F], tool_choice="required", stream=stream)
    assert response.status_code == (200 if stream else 500)
    assert '"code":"tool_call_not_produced"' in response.text


BAD_SCHEMAS: dict[str, object] = {
    "unknown type": {"type": "not-a-type"},
    "reference to itself": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "missing definition": {"$ref": "#/$defs/missing"},
    "remote": {"$ref": "https://example.com/s.json"},
    "empty": {"type": "integer", "minimum": 5, "maximum": 1},
}


@pytest.mark.parametrize("schema", BAD_SCHEMAS.values(), ids=BAD_SCHEMAS)
@pytest.mark.parametrize("strict", [True, False])
def test_c64_malformed_schemas_are_400_and_say_why(
    server: Server, schema: object, strict: bool
) -> None:
    status, error = server.refusal("call", **schema_format(schema, strict=strict))
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["param"] == "response_format"
    assert len(error["message"]) > 20


def nested_choices(depth: int) -> object:
    if depth == 0:
        return {"type": "integer"}
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {"k": {"const": name}, "v": nested_choices(depth - 1)},
                "required": ["k", "v"],
            }
            for name in "ab"
        ]
    }


def multiplying(length: int) -> object:
    parts = {
        f"d{index}": {"allOf": [{"$ref": f"#/$defs/d{index + 1}"}] * 2} for index in range(length)
    }
    return {"$defs": {**parts, f"d{length}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def listed(depth: int) -> object:
    return {"type": "array", "items": listed(depth - 1)} if depth else {"type": "integer"}


BOMBS: dict[str, object] = {
    "oneOf 12 deep": nested_choices(12),
    "arrays 200 deep": listed(200),
    "two megabytes": {"enum": ["x" * 100] * 20_000},
    "references that multiply": multiplying(40),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_c73_compile_bombs_are_refused_in_time_and_stop_nobody(
    start_server: StartServer, bomb: object
) -> None:
    running = start_server(script=SCRIPT)
    server = Server(running.url)
    with concurrent.futures.ThreadPoolExecutor() as pool, httpx.Client() as client:
        live = pool.submit(server.ask, "slow", max_tokens=100)
        begun = time.monotonic()
        refused = pool.submit(server.refusal, "call", **schema_format(bomb))
        waits: list[float] = []
        while not refused.done():
            asked = time.monotonic()
            assert client.get(f"{server.url}/health", timeout=30).status_code == 200
            waits.append(time.monotonic() - asked)
        status, error = refused.result()
        assert time.monotonic() - begun < 10
        # JSON that nests deeper than any parser follows is refused before it is a schema.
        assert (status, error["code"]) in {(400, "invalid_schema"), (422, "invalid_json")}
        assert sorted(waits)[len(waits) // 2] < 0.5
        assert live.result()["finish_reason"] == "length"


def test_c68_properties_keep_their_order(server: Server) -> None:
    schema = {
        "type": "object",
        "properties": {
            "zz_reason": {"type": "string", "maxLength": 20},
            "answer": {"type": "integer"},
            "b": {"type": "boolean"},
        },
        "required": ["answer", "zz_reason", "b"],
        "additionalProperties": False,
    }
    server.ask("numbers", **schema_format(schema))
    checked = httpx.post(
        f"{server.url}/v1/structured_outputs/check",
        json={"kind": "json_schema", "value": schema},
        timeout=30,
    ).json()
    assert list(json.loads(checked["example"])) == ["zz_reason", "answer", "b"]
    assert server.constraints(1) == [checked["constraint"]["value"]]
