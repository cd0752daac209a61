"""Compaction: the endpoint, the automatic one, and what replays it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.responses.api import Api

COMPACT = "/v1/responses/compact"
LONG = "long " * 40


def history(turns: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [{"role": "developer", "content": "keep-me"}]
    for number in range(turns):
        items += [
            {"role": "user", "content": f"question-{number} {LONG}"},
            {"role": "assistant", "content": f"answer-{number} {LONG}"},
        ]
    return items


def opened(item: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(base64.urlsafe_b64decode(item["encrypted_content"]))
    return content


def test_older_turns_become_one_item_that_is_replayed(api: Api) -> None:
    made = api.post(COMPACT, model="scripted", input=history(8), keep_tokens=100).json()
    assert made["object"] == "response.compaction"
    assert isinstance(made["created_at"], int)
    assert made["usage"]["output_tokens"] == 4
    assert "What tools returned is evidence" in api.prompts()[-1]
    kinds = [item["type"] for item in made["output"]]
    assert kinds.count("compaction") == 1
    assert made["output"][0]["role"] == "developer"
    capsule = opened(made["output"][-1])
    assert capsule["summary"] == "The code is 4711."
    retained = json.dumps(capsule["items"])
    assert "question-7" in retained
    assert "question-6" not in retained
    again = [*made["output"], {"role": "user", "content": "which code?"}]
    api.create(input=again)
    prompt = api.prompts()[-1]
    assert "4711" in prompt
    assert prompt.count("keep-me") == prompt.count("question-7") == 1
    assert "question-0" not in prompt
    assert made["output"][-1]["encrypted_content"] not in prompt
    assert api.status(made["id"]) == 404


def test_c55_a_codex_history_is_compacted(api: Api) -> None:
    made = api.post(
        COMPACT,
        model="scripted",
        instructions="keep facts",
        input=[
            {"role": "user", "content": "code 4711"},
            {"role": "assistant", "content": "ok " * 30},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "42"},
        ],
        stream=False,
        store=False,
        prompt_cache_key="k",
        unknown_field=1,
    )
    assert made.status_code == 200, made.text
    assert [item["type"] for item in made.json()["output"]].count("compaction") == 1


def test_a_call_is_never_parted_from_its_output(api: Api) -> None:
    items = history(3)
    for number in range(4):
        call = {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": f"c{number}", "output": LONG}
        items += [call, output]
    for keep in (1, 60, 120, 240, 400):
        made = api.post(COMPACT, model="scripted", input=items, keep_tokens=keep).json()
        retained = opened(made["output"][-1])["items"]
        calls = [item["call_id"] for item in retained if item["type"] == "function_call"]
        outputs = [i["call_id"] for i in retained if i["type"] == "function_call_output"]
        assert calls == outputs
        assert "question-2" in json.dumps(retained), "the latest user message is always kept"


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("context_length_exceeded", {"input": "w " * 2500}),
        ("context_length_exceeded", {"input": "one short line"}),
        ("context_length_exceeded", {"input": [
            {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"}]}),
        ("invalid_value", {"stream": True}),
        ("invalid_value", {"previous_response_id": "resp_x"}),
        ("invalid_value", {"conversation": "c"}),
        ("invalid_value", {"keep_tokens": 0}),
        ("invalid_value", {"max_output_tokens": 0}),
        ("invalid_value", {"max_output_tokens": 16385}),
    ],
)  # fmt: skip
def test_what_cannot_be_compacted_is_400(api: Api, code: str, fields: dict[str, Any]) -> None:
    status, error = api.refused(COMPACT, **{"input": history(4), **fields})
    assert (status, error["code"]) == (400, code)


@pytest.mark.parametrize(
    "content",
    [
        "not base64!",
        "e30=",
        base64.urlsafe_b64encode(b'{"version":2,"summary":"","items":[]}').decode(),
        base64.urlsafe_b64encode(b'{"version":1,"summary":"s","items":[{"type":"x"}]}').decode(),
        base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    ],
)
def test_malformed_compaction_items_are_400(api: Api, content: str) -> None:
    item = {"type": "compaction", "encrypted_content": content}
    for path in ("/v1/responses", "/v1/responses/input_tokens", COMPACT):
        status, error = api.refused(path, input=[item, {"role": "user", "content": "x"}])
        assert (status, error["code"]) == (400, "invalid_compaction")


def management(threshold: int) -> list[dict[str, Any]]:
    return [{"type": "compaction", "compact_threshold": threshold}]


def test_below_the_threshold_nothing_is_compacted(api: Api) -> None:
    made = api.create(input=history(2), context_management=management(1500))
    assert [item["type"] for item in made["output"]] == ["message"]
    assert "compaction" not in made["usage"]


def test_an_automatic_compaction_is_told_counted_and_chained(api: Api) -> None:
    items = [*history(8), {"role": "user", "content": "go on"}]
    counted = api.post("/v1/responses/input_tokens", model="scripted", input=items).json()
    events = api.stream(input=items, context_management=management(500))
    assert [event.name for event in events[2:6]] == [
        "mlx.compaction.started",
        "mlx.compaction.completed",
        "response.output_item.added",
        "response.output_item.done",
    ]
    started, completed = events[2].data, events[3].data
    final = events[-1].data["response"]
    assert started["input_tokens"] == completed["input_tokens_before"] == counted["input_tokens"]
    assert completed["input_tokens_after"] == final["usage"]["input_tokens"] < 500
    assert started["response_id"] == final["id"]
    assert final["usage"]["compaction"]["output_tokens"] == 4
    assert [item["type"] for item in final["output"]] == ["compaction", "message"]
    again = api.create(
        input="and on", previous_response_id=final["id"], context_management=management(500)
    )
    assert [item["type"] for item in again["output"]] == ["message"]
    prompt = api.prompts()[-1]
    assert "4711" in prompt
    assert "question-0" not in prompt
    assert "go on" in prompt


def test_without_room_for_output_the_history_is_compacted(api: Api) -> None:
    items = [*history(19), {"role": "user", "content": "go on " * 220}]
    assert api.refused(input=items)[1]["code"] == "context_length_exceeded"
    made = api.create(input=items, context_management=management(100_000))
    assert made["output"][0]["type"] == "compaction"


def test_a_failing_compaction_is_an_http_error_in_front_and_a_failed_job_behind(api: Api) -> None:
    body: dict[str, Any] = {"input": "w " * 1000, "context_management": management(10)}
    for streamed in (False, True):
        status, error = api.refused(**body, stream=streamed)
        assert (status, error["code"]) == (400, "context_length_exceeded")
    made = api.ended(api.create(**body, background=True)["id"])
    assert (made["status"], made["error"]["code"]) == ("failed", "invalid_prompt")


def test_a_job_compacts_by_itself(api: Api) -> None:
    items = [*history(8), {"role": "user", "content": "go on"}]
    made = api.ended(
        api.create(input=items, context_management=management(500), background=True)["id"]
    )
    assert [item["type"] for item in made["output"]] == ["compaction", "message"]


@pytest.mark.parametrize("how", ["whole", "streamed", "background"])
def test_c55_a_trigger_at_the_end_compacts_and_answers_nothing(api: Api, how: str) -> None:
    items = [*history(6), {"type": "compaction_trigger"}]
    if how == "whole":
        made = api.create(input=items)
    elif how == "streamed":
        made = api.stream(input=items)[-1].data["response"]
    else:
        made = api.ended(api.create(input=items, background=True)["id"])
    assert made["status"] == "completed"
    assert [item["type"] for item in made["output"]] == ["compaction"]
    api.create(input="which code?", previous_response_id=made["id"])
    assert "4711" in api.prompts()[-1]
    assert "question-0" not in api.prompts()[-1]
    status, _ = api.refused(input=[*items, {"role": "user", "content": "x"}])
    assert status == 400


def test_calls_that_were_never_answered_do_not_hinder(api: Api) -> None:
    call = {"type": "function_call", "call_id": "lost", "name": "f", "arguments": "{}"}
    items = [{"role": "user", "content": "begin"}, call, *history(6)]
    made = api.post(COMPACT, model="scripted", input=items)
    assert made.status_code == 200, made.text
    open_end = [*history(6), {"role": "user", "content": "go"}, {**call, "call_id": "open"}]
    kept = api.post(COMPACT, model="scripted", input=open_end).json()
    assert opened(kept["output"][-1])["items"][-1]["call_id"] == "open"
