"""Reasoning memory: turns that come back bare are rendered as they were generated."""

from __future__ import annotations

from typing import Any

from tests.responses.api import Serve

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}\n{% endfor %}assistant:"
)
SCRIPT: dict[str, Any] = {
    "context_tokens": 2000,
    "reasoning_format": "think_tags",
    "chat_template": TEMPLATE,
    "rules": [{"match": "ponder", "pieces": ["<think>", "deep-thought", "</think>", "forty two"]}],
    "default": {"echo": True},
}
ASKED = {"role": "user", "content": "ponder"}
ANSWER = {"role": "assistant", "content": "forty two"}
NEXT = {"role": "user", "content": "and now"}


def test_a_bare_turn_gets_its_reasoning_back_and_an_edited_one_does_not(serve: Serve) -> None:
    api = serve(script=SCRIPT)
    api.create(input=[ASKED])
    made = api.create(input=[ASKED, ANSWER, NEXT])
    assert "<think>deep-thought</think>" in api.prompts()[-1]
    counted = api.post(
        "/v1/responses/input_tokens", model="scripted", input=[ASKED, ANSWER, NEXT]
    ).json()
    assert counted["input_tokens"] == made["usage"]["input_tokens"]
    edits: list[dict[str, Any]] = [
        {"input": [ASKED, {**ANSWER, "content": "forty three"}, NEXT]},
        {"input": [{**ASKED, "content": "ponder it"}, ANSWER, NEXT]},
        {"input": [ASKED, ANSWER, NEXT], "prompt_cache_key": "other"},
        {"input": [ASKED, ANSWER, NEXT], "chat_template_kwargs": {"x": 1}},
        {
            "input": [ASKED, ANSWER, NEXT],
            "tools": [{"type": "function", "name": "f", "parameters": {}}],
        },
    ]
    for edited in edits:
        api.create(**edited)
        assert "deep-thought" not in api.prompts()[-1], edited


def test_nothing_is_remembered_without_a_budget_or_for_another_key(serve: Serve) -> None:
    off = serve("--reasoning-echo-max-bytes", "0", script=SCRIPT)
    off.create(input=[ASKED])
    off.create(input=[ASKED, ANSWER, NEXT])
    assert "deep-thought" not in off.prompts()[-1]
    keyed = serve("--api-key", "one", "--api-key", "two", script=SCRIPT)
    for key, items in (("one", [ASKED]), ("two", [ASKED, ANSWER, NEXT])):
        keyed.http.headers["authorization"] = f"Bearer {key}"
        keyed.create(input=items)
    assert "deep-thought" not in keyed.prompts()[-1]
    keyed.http.headers["authorization"] = "Bearer one"
    keyed.create(input=[ASKED, ANSWER, NEXT])
    assert "deep-thought" in keyed.prompts()[-1]
