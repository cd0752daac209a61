"""Contexts over HTTP: strict numbers, the expected value, bounds, and what a change does."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.native.conftest import MakeWire, Wire, refusal

LIMITED = {"context_tokens": 8192}
PATH = "/v1/models/context"


@pytest.fixture(scope="module")
def wire(make_wire: MakeWire) -> Wire:
    return make_wire(
        {"one": LIMITED, "two": LIMITED, "vectors": {"embedding": {"dimensions": 8}}},
        entries={
            "one": {"max_context_len": 2048, "autostart": True, "aliases": ["org/one"]},
            "two": {"max_context_len": 2048, "max_output_tokens": 256},
        },
    )


def configured(wire: Wire, model: str) -> int:
    return int(wire.get(PATH, model=model)["configured_context_tokens"])


def reset(wire: Wire, model: str, tokens: int = 2048) -> None:
    now = configured(wire, model)
    if now != tokens:
        wire.post(PATH, model=model, context_tokens=tokens, expected_context_tokens=now)


def test_every_model_is_listed_loaded_or_not(wire: Wire) -> None:
    reset(wire, "two")
    listed = {model["model"]: model for model in wire.get("/v1/models/contexts")["data"]}
    assert set(listed) == {"one", "two", "vectors"}
    two = listed["two"]
    assert two["configured_context_tokens"] == two["recommended_context_tokens"] == 2048
    assert two["model_architecture_limit_tokens"] == two["maximum_context_tokens"] == 8192
    assert two["minimum_context_tokens"] == 256 + 64
    assert (two["trial"], two["loaded"], two["applies"]) == (False, False, "next-load")
    assert two["configurable"] is True
    assert (listed["one"]["loaded"], listed["one"]["applies"]) == (True, "now")


def test_one_model_shows_its_choices_and_what_nobody_has_verified(wire: Wire) -> None:
    reset(wire, "two")
    shown = wire.get(PATH, model="two")
    assert shown["total_context_tokens"] == 2048
    assert shown["prompt_budget_tokens"] == 2048 - 256
    assert shown["output_budget_tokens"] == 256
    assert shown["presets"] == [512, 1024, 2048, 4096, 8192]
    candidates = {one["context_tokens"]: one["trial"] for one in shown["candidates"]}
    assert candidates == {512: False, 1024: False, 2048: False, 4096: True, 8192: True}
    assert shown["memory_guidance"]["verified"] is False
    assert wire.get(PATH, model="org/one")["model"] == "one"


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({}, 422, "missing_required_parameter"),
        ({"model": ""}, 422, "invalid_value"),
        ({"model": "nobody"}, 404, "model_not_found"),
        ({"model": "../one"}, 404, "model_not_found"),
    ],
)
def test_a_question_for_nothing_is_refused(
    wire: Wire, query: dict[str, str], status: int, code: str
) -> None:
    refusal(wire.client.get(PATH, params=query), status, code)


@pytest.mark.parametrize("value", ['"4096"', "4096.0", "true", "null", "[4096]", "4e3", "NaN"])
@pytest.mark.parametrize("field", ["context_tokens", "expected_context_tokens"])
def test_edge_76_integers_are_strict(wire: Wire, field: str, value: str) -> None:
    reset(wire, "two")
    fields = {"model": '"two"', "context_tokens": "4096", "expected_context_tokens": "2048"}
    body = ",".join(f'"{name}":{text}' for name, text in (fields | {field: value}).items())
    answer = wire.client.post(PATH, content="{" + body + "}")
    assert refusal(answer, 422, "invalid_value")["param"] == field
    assert configured(wire, "two") == 2048


def test_edge_77_another_context_than_the_expected_one_changes_nothing(wire: Wire) -> None:
    reset(wire, "two")
    before = wire.catalogued("two")
    revision = wire.model("two")["revision"]
    body = {"model": "two", "context_tokens": 4096, "expected_context_tokens": 1024}
    error = wire.refused(PATH, 409, "context_changed", **body)
    assert error["param"] == "expected_context_tokens"
    assert wire.catalogued("two") == before
    assert wire.model("two")["revision"] == revision


@pytest.mark.parametrize("tokens", [8193, 319, 0, -1, 10**18, 10**40])
def test_edge_78_what_is_out_of_bounds_is_400(wire: Wire, tokens: int) -> None:
    reset(wire, "two")
    body = {"model": "two", "context_tokens": tokens, "expected_context_tokens": 2048}
    error = wire.refused(PATH, 400, "context_out_of_bounds", **body)
    assert "320" in error["message"]
    assert "8192" in error["message"]
    assert configured(wire, "two") == 2048


@pytest.mark.parametrize("missing", ["model", "context_tokens", "expected_context_tokens"])
def test_nothing_may_be_missing_and_nothing_may_be_unknown(wire: Wire, missing: str) -> None:
    body = {"model": "two", "context_tokens": 4096, "expected_context_tokens": 2048}
    less = {name: value for name, value in body.items() if name != missing}
    error = wire.refused(PATH, 422, "missing_required_parameter", **less)
    assert error["param"] == missing
    wire.refused(PATH, 422, "invalid_value", **body, force=True)


def test_a_context_of_an_unloaded_model_is_kept_for_its_next_load(wire: Wire) -> None:
    reset(wire, "two")
    changed = wire.post(PATH, model="two", context_tokens=4096, expected_context_tokens=2048)
    assert (changed["status"], changed["applies"], changed["trial"]) == ("saved", "next-load", True)
    assert changed["recommended_context_tokens"] == 2048
    assert (wire.catalogued("two") or {})["max_context_len"] == 4096
    assert wire.model("two")["status"] == "ready_to_load"
    wire.post("/v1/models/load", model="two")
    assert wire.wait("two", "loaded")["context_tokens"] == 4096
    wire.unload("two")


def test_a_context_of_a_loaded_model_holds_at_once(wire: Wire) -> None:
    reset(wire, "one")
    changed = wire.post(PATH, model="org/one", context_tokens=512, expected_context_tokens=2048)
    assert (changed["status"], changed["applies"], changed["loaded"]) == ("applied", "now", True)
    assert wire.model("one")["context_tokens"] == 512
    body = {"model": "one", "messages": [{"role": "user", "content": "word " * 600}]}
    answer = wire.client.post("/v1/chat/completions", json=body)
    error = refusal(answer, 400, "context_length_exceeded")
    assert "512" in error["message"]


def test_edge_79_an_engine_that_does_not_open_leaves_everything_as_it_was(wire: Wire) -> None:
    reset(wire, "one")
    before = wire.catalogued("one")
    wire.script("one", **LIMITED, load_error="no room in /home/ada/cache")
    body = {"model": "one", "context_tokens": 4096, "expected_context_tokens": 2048}
    try:
        answer = wire.client.post(PATH, json=body)
    finally:
        wire.script("one", **LIMITED)
    assert answer.status_code == 409
    assert "/home/ada" not in answer.text
    assert wire.catalogued("one") == before
    assert configured(wire, "one") == 2048
    said = {"model": "one", "messages": [{"role": "user", "content": "still here"}]}
    assert "still here" in wire.client.post("/v1/chat/completions", json=said).text


def test_edge_82_an_embedding_model_has_no_context_to_choose(wire: Wire) -> None:
    shown = wire.get(PATH, model="vectors")
    assert shown["configurable"] is False
    assert shown["reason"]
    body = {"model": "vectors", "context_tokens": 4096, "expected_context_tokens": 4096}
    wire.refused(PATH, 400, "context_not_configurable", **body)


def test_edge_83_a_load_takes_a_context_that_the_loaded_model_has(wire: Wire) -> None:
    reset(wire, "one")
    load = "/v1/models/load"
    assert wire.post(load, model="one", context_tokens=2048)["status"] == "loaded"
    error = wire.refused(load, 409, "context_mismatch", model="one", context_tokens=4096)
    assert "/v1/models/context" in error["message"]
    assert configured(wire, "one") == 2048


def test_a_load_of_an_unloaded_model_keeps_its_context(wire: Wire) -> None:
    wire.unload("two")
    reset(wire, "two")
    load = "/v1/models/load"
    wire.refused(load, 400, "context_out_of_bounds", model="two", context_tokens=9000)
    assert (wire.model("two")["status"], configured(wire, "two")) == ("ready_to_load", 2048)
    wire.post(load, model="two", context_tokens=1024)
    assert wire.wait("two", "loaded")["context_tokens"] == 1024
    assert (wire.catalogued("two") or {})["max_context_len"] == 1024
    wire.unload("two")


def test_edge_102_only_the_user_changes_a_context(wire: Wire) -> None:
    reset(wire, "two", 1024)
    shown = wire.get(PATH, model="two")
    assert (shown["configured_context_tokens"], shown["recommended_context_tokens"]) == (1024, 2048)
    script = {"backend": "scripted", "source_model": f"scripted:{wire.folder / 'two.json'}"}
    body = {"model_id": "two", "max_context_len": 2048} | script
    error = wire.refused("/v1/models/register", 409, "model_exists", **body)
    assert "max_context_len" in error["message"]
    assert configured(wire, "two") == 1024


def test_edge_84_of_many_changes_with_one_expected_value_one_wins(wire: Wire) -> None:
    reset(wire, "two")
    values = [512, 1024, 4096, 8192]

    def change(tokens: int) -> tuple[int, str]:
        body = {"model": "two", "context_tokens": tokens, "expected_context_tokens": 2048}
        answer = wire.client.post(PATH, json=body)
        return answer.status_code, answer.text

    with ThreadPoolExecutor(len(values)) as pool:
        answers = list(pool.map(change, values))
    won = [tokens for tokens, answer in zip(values, answers, strict=True) if answer[0] == 200]
    assert len(won) == 1, answers
    lost = [json.loads(text)["error"]["code"] for status, text in answers if status != 200]
    assert set(lost) <= {"context_changed", "model_busy"}
    assert configured(wire, "two") == won[0]


def test_edge_81_a_context_survives_a_restart(make_wire: MakeWire) -> None:
    first = make_wire({"two": LIMITED}, entries={"two": {"max_context_len": 2048}})
    first.post(PATH, model="two", context_tokens=4096, expected_context_tokens=2048)
    assert first.server.stop() == 0
    entry = first.catalogued("two")
    assert entry is not None
    second = make_wire({}, entries={"two": entry})
    shown = second.get(PATH, model="two")
    assert (shown["configured_context_tokens"], shown["recommended_context_tokens"]) == (4096, 2048)
    assert shown["trial"] is True
