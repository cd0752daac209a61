"""Calls that other servers get wrong, over HTTP: streamed and not, on both APIs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

ScriptedServer = Callable[..., str]
ReadChunks = Callable[[str], list[dict[str, Any]]]

CALL = '<tool_call>\n{"name": "f", "arguments": {"n": %d}}\n</tool_call>'
THREE = "".join(CALL % n for n in (1, 2, 3)) + "ok done"
LS = '<tool_call>{"name":"ls","arguments":{"p":"."}}</tool_call>'
TYPED = (
    '<tool_call><function=f><parameter=loc>{"city":"Oslo"}</parameter>'
    "<parameter=day>2026-01-15</parameter><parameter=id>007</parameter>"
    "<parameter=on>True</parameter><parameter=raw>12</parameter></function></tool_call>"
)
PROPERTIES: dict[str, Any] = {
    "loc": {"anyOf": [{"type": "object"}, {"type": "null"}]},
    "day": {"type": "integer"},
    "id": {"type": "string"},
    "on": {"type": "boolean"},
    "raw": {},
}
NINE = """\
{%- if tools %}[TOOLS]{{ tools|tojson }} {% endif -%}
{%- for message in messages -%}
{%- for call in message.tool_calls or [] -%}
{%- if call.id|length != 9 or not call.id.isalnum() -%}
{{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") -}}
{%- endif -%}
[TOOL_CALLS]{{ call.id }} {{ call.function|tojson }} {% endfor -%}
{%- if message.role == "tool" -%}
{%- if message.tool_call_id|length != 9 -%}
{{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") -}}
{%- endif -%}
[RESULT]{{ message.tool_call_id }} {% endif -%}
{{ message.content or "" }}
{% endfor -%}
"""


def function(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def script(tool_format: str, *rules: tuple[str, list[str]], **more: Any) -> dict[str, Any]:
    told = [{"match": match, "pieces": pieces} for match, pieces in rules]
    return {"tool_format": tool_format, "rules": told, **more}


def ask(url: str, question: str, **fields: Any) -> httpx.Response:
    messages = [{"role": "user", "content": question}]
    body = {"model": "scripted", "messages": messages, **fields}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)


def answer(url: str, question: str, **fields: Any) -> dict[str, Any]:
    response = ask(url, question, **fields)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()["choices"][0]
    return found


Told = tuple[str, list[tuple[str, str]], str | None]


def told(choice: dict[str, Any]) -> Told:
    message = choice["message"]
    parts: list[dict[str, Any]] = message.get("tool_calls") or []
    calls: list[dict[str, str]] = [part["function"] for part in parts]
    pairs = [(call["name"], call["arguments"]) for call in calls]
    return message.get("content") or "", pairs, choice["finish_reason"]


def told_in(chunks: list[dict[str, Any]]) -> Told:
    text, calls, finish = "", dict[int, list[str]](), None
    for choice in itertools.chain.from_iterable(chunk["choices"] for chunk in chunks):
        text += choice["delta"].get("content") or ""
        finish = choice["finish_reason"] or finish
        parts: list[dict[str, Any]] = choice["delta"].get("tool_calls") or []
        for part in parts:
            call = calls.setdefault(part["index"], ["", ""])
            call[0] += part["function"].get("name") or ""
            call[1] += part["function"].get("arguments") or ""
    return text, [(name, arguments) for name, arguments in calls.values()], finish


def test_c06_streams_and_answers_hold_the_same_calls(
    scripted_server: ScriptedServer, read_chunks: ReadChunks
) -> None:
    cuts = {"whole": [THREE], "letters": list(THREE)}
    cuts |= {f"at{n}": [THREE[:n], THREE[n:]] for n in range(1, len(THREE), 7)}
    rules = [(f"^{name}$", pieces) for name, pieces in cuts.items()]
    url = scripted_server(script("hermes", *rules))
    wanted = [("f", json.dumps({"n": n})) for n in (1, 2, 3)]
    for name in cuts:
        fields = {"tools": [function("f")]}
        streamed = told_in(read_chunks(ask(url, name, stream=True, **fields).text))
        assert streamed == told(answer(url, name, **fields))
        assert streamed == ("ok done", wanted, "tool_calls")


def test_c11_values_are_typed_alike_on_both_apis(scripted_server: ScriptedServer) -> None:
    url = scripted_server(script("qwen3_coder", ("typed", [TYPED])))
    tool = function("f", **PROPERTIES)
    chat = told(answer(url, "typed", tools=[tool]))[1]
    flat = {"type": "function", **tool["function"]}
    body = {"model": "scripted", "input": "typed", "tools": [flat]}
    response = httpx.post(f"{url}/v1/responses", json=body, timeout=60).json()
    items = [item for item in response["output"] if item["type"] == "function_call"]
    assert chat == [(item["name"], item["arguments"]) for item in items]
    [(_, arguments)] = chat
    read = json.loads(arguments)
    assert read.pop("raw") in (12, "12")
    assert read == {"loc": {"city": "Oslo"}, "day": "2026-01-15", "id": "007", "on": True}


@pytest.mark.parametrize("stream", [False, True])
def test_c12_ids_of_any_maker_fit_the_template(
    scripted_server: ScriptedServer, stream: bool
) -> None:
    url = scripted_server(script("mistral", chat_template=NINE))
    ids = ["call_0123456789abcdef", "call_0123456789abcdeg"]
    calls = [
        {"id": one, "type": "function", "function": {"name": "add", "arguments": "{}"}}
        for one in ids
    ]
    results = [{"role": "tool", "tool_call_id": one, "content": "4"} for one in ids]
    assistant = {"role": "assistant", "content": None, "tool_calls": calls}
    messages = [{"role": "user", "content": "2+2"}, assistant, *results]
    body = {"model": "scripted", "messages": messages, "stream": stream}
    response = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    prompt = httpx.get(f"{url}/debug/scripted/scripted").json()["requests"][-1]["prompt"]
    called = [part.split()[0] for part in prompt.split("[TOOL_CALLS]")[1:]]
    answered = [part.split()[0] for part in prompt.split("[RESULT]")[1:]]
    assert called == answered
    assert len(set(called)) == 2, prompt


def test_c12_ids_of_our_own_fit_the_template(scripted_server: ScriptedServer) -> None:
    pieces = ['[TOOL_CALLS]add[ARGS]{"a": 2}', '[TOOL_CALLS]add[ARGS]{"a": 3}']
    url = scripted_server(script("mistral", ("2", pieces), chat_template=NINE))
    message = answer(url, "2", tools=[function("add")])["message"]
    ids = [call["id"] for call in message["tool_calls"]]
    assert len(set(ids)) == 2
    assert all(len(one) == 9 and one.isalnum() for one in ids)


def test_c15_json_in_an_answer_is_no_call(scripted_server: ScriptedServer) -> None:
    record = 'Here is a record:\n```json\n{"name":"Alice","arguments":{"x":1}}\n```'
    url = scripted_server(script("hermes", ("record", [record])))
    assert told(answer(url, "record", tools=[function("add")])) == (record, [], "stop")


def test_c18_a_call_at_the_end_of_an_open_block_is_made(scripted_server: ScriptedServer) -> None:
    primed = {"reasoning_format": "think_tags", "prompt_suffix": "<think>\n"}
    url = scripted_server(script("hermes", ("list", ["need it ", LS]), **primed))
    choice = answer(url, "list", tools=[function("ls")])
    assert told(choice) == ("", [("ls", '{"p":"."}')], "tool_calls")
    assert choice["message"]["reasoning_content"] == "need it"


WHOLE, PLAIN = CALL % 1, "only words"
CASES = {
    ("auto", "whole"): (200, "tool_calls", 1),
    ("auto", "plain"): (200, "stop", 0),
    ("auto", "cut"): (200, "length", None),
    ("required", "whole"): (200, "tool_calls", 1),
    ("required", "plain"): (500, None, 0),
    ("required", "cut"): (200, "length", None),
    ("named", "whole"): (200, "tool_calls", 1),
    ("named", "plain"): (500, None, 0),
    ("named", "cut"): (200, "length", None),
    ("none", "whole"): (200, "stop", 0),
    ("none", "plain"): (200, "stop", 0),
    ("none", "cut"): (200, "length", 0),
}


@pytest.fixture
def matrix(scripted_server: ScriptedServer) -> str:
    cut = [WHOLE[:-20], WHOLE[-20:]]
    rules = (("^whole", [WHOLE]), ("^plain", [PLAIN]), ("^cut", cut))
    return scripted_server(script("hermes", *rules))


def test_c23_the_reason_of_the_end_says_what_came(matrix: str, read_chunks: ReadChunks) -> None:
    named = {"type": "function", "function": {"name": "f"}}
    for (choice, text), (status, finish, calls) in CASES.items():
        fields: dict[str, Any] = {
            "tools": [function("f")],
            "tool_choice": named if choice == "named" else choice,
            "max_tokens": 1 if text == "cut" else 50,
        }
        response = ask(matrix, text, **fields)
        streamed = ask(matrix, text, stream=True, **fields)
        if status != 200:
            assert response.status_code == status
            assert response.json()["error"]["code"] == "tool_call_not_produced"
            assert "tool_call_not_produced" in streamed.text
            continue
        found = told(response.json()["choices"][0])
        assert found[2] == finish, (choice, text)
        assert calls is None or len(found[1]) == calls
        assert told_in(read_chunks(streamed.text)) == found, (choice, text)


def test_c24_a_choice_of_none_offers_and_reads_no_calls(matrix: str) -> None:
    choice = answer(matrix, "whole", tools=[function("f")], tool_choice="none")
    assert told(choice) == (WHOLE, [], "stop")
    prompt = httpx.get(f"{matrix}/debug/scripted/scripted").json()["requests"][-1]["prompt"]
    assert '"f"' not in prompt


def test_c19_markers_never_show_and_keeping_them_is_refused_by_name(matrix: str) -> None:
    assert told(answer(matrix, "whole", tools=[function("f")], skip_special_tokens=True))[0] == ""
    refused = ask(matrix, "whole", skip_special_tokens=False)
    assert (refused.status_code, refused.json()["error"]["param"]) == (501, "skip_special_tokens")
