"""The list, one model, the state of all, and loading: what the native routes show and refuse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.native.conftest import MakeWire, Wire, refusal

SLOW = {"load_delay_ms": 60_000}
KEY = {"authorization": "Bearer sesame"}
PROGRESS = {
    "schema_version",
    "phase",
    "percent",
    "message",
    "operation_id",
    "operation_type",
    "revision",
    "completed",
    "total",
    "started_at",
    "updated_at",
}
SAFE_FIELDS = {
    "backend",
    "source_model",
    "weight_format",
    "recommended_device",
    "device",
    "max_context_len",
    "max_output_tokens",
    "supports_vision",
}


@pytest.fixture(scope="module")
def wire(make_wire: MakeWire) -> Wire:
    return make_wire(
        {
            "one": {},
            "slow": SLOW,
            "vectors": {"embedding": {"dimensions": 8}},
            "broken": {"load_error": "no such file: /home/ada/models/x.bin hf_Secret0123456789"},
        },
        entries={
            "one": {"autostart": True, "aliases": ["gpt-4o-mini", "org/model name"]},
            "vectors": {"description": "numbers"},
        },
    )


def test_every_model_is_listed_with_its_status(wire: Wire) -> None:
    listed = wire.get("/v1/models")
    assert listed["object"] == "list"
    models = {model["id"]: model for model in listed["data"]}
    assert set(models) == {"one", "slow", "vectors", "broken"}
    assert {model["object"] for model in models.values()} == {"model"}
    assert {model["owned_by"] for model in models.values()} == {"pegboard"}
    assert models["one"]["status"] == "loaded"
    assert models["vectors"]["status"] == "ready_to_load"
    # The time of registration, not of the question.
    assert listed == wire.get("/v1/models")


@pytest.mark.parametrize(
    "path", ["one", "gpt-4o-mini", "org/model%20name", "org%2Fmodel%20name", "org%2fmodel name"]
)
def test_a_model_is_found_by_id_and_alias_slashes_included(wire: Wire, path: str) -> None:
    assert wire.get(f"/v1/models/{path}")["id"] == "one"


@pytest.mark.parametrize(
    "path",
    ["nobody", "One", "one/", "%2e%2e/one", "..%2Fmodels.json", "x" * 5000, "%00", "auto"],
)
def test_an_unknown_model_is_404_and_its_name_is_cut(wire: Wire, path: str) -> None:
    answer = wire.client.get(f"/v1/models/{path}")
    error = refusal(answer, 404, "model_not_found")
    assert error["param"] == "model"
    assert len(error["message"]) < 200
    assert answer.headers["x-request-id"]


def test_the_status_shows_everything_that_is_safe(wire: Wire) -> None:
    status = wire.get("/v1/models/status")
    assert status["schema_version"] == 1
    assert status["device"]["loaded"] == {"one": "CPU"}
    assert status["models"]["loaded"] == ["one"]
    assert status["models"]["count"] == 1
    for model in status["models"]["available"]:
        assert set(model["progress"]) == PROGRESS
        assert model.keys() >= SAFE_FIELDS | {"is_loaded", "is_loading", "can_cancel", "error"}
    one, vectors = wire.model("one"), wire.model("vectors")
    assert (one["is_loaded"], one["can_cancel"], one["progress"]["phase"]) == (True, False, "ready")
    assert (vectors["is_loaded"], vectors["device"]) == (False, None)
    assert (vectors["capabilities"], vectors["progress"]["phase"]) == (["embeddings"], "idle")
    assert one["source_model"] == "scripted:one.json"
    assert str(wire.folder) not in wire.client.get("/v1/models/status").text


def test_a_load_is_acknowledged_watched_and_unloaded(wire: Wire) -> None:
    wire.unload("vectors")
    told = wire.post("/v1/models/load", model="vectors")
    assert told["model_id"] == told["model"]["id"] == "vectors"
    assert told["status"] in {"loading", "loaded"}
    loaded = wire.wait("vectors", "loaded")
    assert loaded["progress"]["operation_id"].startswith("load-")
    assert loaded["revision"] > told["revision"] - 1
    again = wire.post("/v1/models/load", model="vectors")
    assert (again["status"], again["operation_id"]) == ("loaded", None)
    assert again["model"]["progress"]["operation_id"] == loaded["progress"]["operation_id"]
    unloaded = wire.post("/v1/models/unload", model="vectors")
    assert (unloaded["status"], unloaded["model"]["is_loaded"]) == ("unloaded", False)
    # It is not there any more, which is what was asked for.
    assert wire.post("/v1/models/unload", model="vectors")["status"] == "unloaded"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "missing_required_parameter"),
        ({"model": ""}, 422, "invalid_value"),
        ({"model": None}, 422, "invalid_value"),
        ({"model": "x" * 201}, 422, "invalid_value"),
        ({"model": "../one"}, 404, "model_not_found"),
        ({"model": "auto"}, 404, "model_not_found"),
        ({"model": "one", "gadget": 1}, 422, "invalid_value"),
        ({"model": "one", "force": 1}, 422, "invalid_value"),
        ({"model": "one", "force": "true"}, 422, "invalid_value"),
        ({"model": "one", "context_tokens": "4096"}, 422, "invalid_value"),
        ({"model": "one", "context_tokens": 4096.0}, 422, "invalid_value"),
        ({"model": "one", "context_tokens": True}, 422, "invalid_value"),
        ({"model": "slow", "context_tokens": 10**30}, 400, "context_out_of_bounds"),
        ({"model": "slow", "context_tokens": -1}, 400, "context_out_of_bounds"),
        ({"model": "one", "device": "GPU.x"}, 400, "invalid_device"),
        ({"model": "one", "device": ""}, 400, "invalid_device"),
        ({"model": "one", "draft_model": "slow"}, 400, "not_supported"),
    ],
)
def test_a_bad_load_changes_nothing(wire: Wire, body: object, status: int, code: str) -> None:
    before = [(m["id"], m["revision"]) for m in wire.get("/v1/models")["data"]]
    refusal(wire.client.post("/v1/models/load", json=body), status, code)
    assert [(m["id"], m["revision"]) for m in wire.get("/v1/models")["data"]] == before


def test_edge_98_a_draft_model_is_refused_and_not_passed_over(wire: Wire) -> None:
    wire.post("/v1/models/load", model="vectors")
    wire.wait("vectors", "loaded")
    for model in ("vectors", "slow"):
        wire.refused("/v1/models/load", 400, "not_supported", model=model, draft_model="one")
    wire.unload("vectors")


def test_edge_62_cancel_is_for_exactly_one_operation(wire: Wire) -> None:
    nothing = {"model": "slow", "operation_id": "load-1"}
    wire.refused("/v1/models/cancel", 409, "no_active_operation", **nothing)
    loading = wire.post("/v1/models/load", model="slow")
    operation = loading["operation_id"]
    assert loading["status"] == "loading"
    assert wire.model("slow")["can_cancel"] is True
    assert wire.get("/v1/models/status")["models"]["loading_count"] == 1
    stale = wire.refused("/v1/models/cancel", 409, "stale_operation", **nothing)
    assert operation in stale["message"]
    named = {"model": "slow", "operation_id": operation}
    cancelled = wire.post("/v1/models/cancel", **named)
    assert cancelled["status"] == "cancelled"
    assert cancelled["model_id"] == cancelled["model"]["id"] == "slow"
    assert cancelled["operation_id"] == operation
    assert cancelled["operation_type"] == "load"
    assert cancelled["already_cancelled"] is False
    assert cancelled["model"]["progress"]["phase"] == "cancelled"
    revision = wire.model("slow")["revision"]
    again = wire.post("/v1/models/cancel", **named)
    assert again["already_cancelled"] is True
    # The second one wrote nothing.
    assert wire.model("slow")["revision"] == revision
    finished = wire.model("one")["progress"]["operation_id"]
    one = {"model": "one", "operation_id": finished}
    wire.refused("/v1/models/cancel", 409, "task_finished", **one)


@pytest.mark.parametrize("operation", ["", " load-1", "-load", "a/b", "x" * 129, "é", None, 7])
def test_an_operation_id_of_another_form_is_422(wire: Wire, operation: object) -> None:
    body = {"model": "slow", "operation_id": operation}
    refusal(wire.client.post("/v1/models/cancel", json=body), 422, "invalid_value")


def test_edge_99_the_error_of_a_load_names_no_folder_and_no_token(wire: Wire) -> None:
    wire.post("/v1/models/load", model="broken")
    shown = wire.wait("broken", "error")
    assert "x.bin" in shown["error"]
    for path in ("/v1/models", "/v1/models/status", "/v1/system/status", "/v1/models/broken"):
        text = wire.client.get(path).text
        assert "/home/ada" not in text
        assert "hf_Secret" not in text
    assert "hf_Secret" not in wire.server.log()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/models/one"),
        ("PUT", "/v1/models/status"),
        ("DELETE", "/v1/models"),
        ("PATCH", "/v1/models/context"),
    ],
)
def test_another_method_is_405_in_the_envelope(wire: Wire, method: str, path: str) -> None:
    refusal(wire.client.request(method, path), 405, "method_not_allowed")


def test_every_route_wants_the_key_when_there_is_one(make_wire: MakeWire) -> None:
    wire = make_wire({"one": {}}, "--api-key", "sesame", headers=KEY)
    routes = wire.get("/openapi.json")["paths"]
    asked = [
        (method, path.replace("{model_id}", "one"))
        for path, methods in routes.items()
        if re.match(r"/v1/(models|huggingface|system)\b", path)
        for method in methods
    ]
    assert len(asked) >= 20
    wrong = {b"authorization": "Bearer sésame".encode()}
    for method, path in asked:
        answer = wire.client.request(method, path, headers=wrong)
        # The first ten attempts are told so, then attempts are refused for a while.
        assert answer.status_code in {401, 429}, (method, path)
        assert answer.json()["error"]["type"] in {"authentication_error", "rate_limit_error"}


def test_models_to_begin_with_need_no_network(wire: Wire) -> None:
    offered = wire.get("/v1/models/suggested")["data"]
    assert len({model["id"] for model in offered}) == len(offered) >= 8
    assert {model["backend"] for model in offered} == {
        "openvino-genai",
        "openvino-embeddings",
        "openvino-rerank",
    }
    for model in offered:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", model["id"])
        assert model["source_model"].startswith(("hf:", "package:"))
        assert model["size_bytes"] > 0
        assert model["license"]
        assert model["registered_as"] is None


def test_a_model_to_begin_with_can_be_registered_as_it_is(wire: Wire) -> None:
    offered = wire.get("/v1/models/suggested")["data"][2]
    fields = {
        name: offered[name]
        for name in (
            "name",
            "source_model",
            "backend",
            "weight_format",
            "recommended_device",
            "description",
        )
    }
    told = wire.post("/v1/models/register", model_id="mine", **fields)
    assert told["model"]["source_model"] == offered["source_model"]
    again = wire.get("/v1/models/suggested")["data"][2]
    assert again["registered_as"] == "mine"
    assert wire.client.delete("/v1/models/mine").json()["deleted"] is True
    assert wire.catalogued("mine") is None
    assert Path(wire.folder / "models.json").exists()


def test_the_openai_preset_leaves_native_routes_alone(make_wire: MakeWire) -> None:
    wire = make_wire({"one": {}}, "--compat", "openai")
    refusal(wire.client.get("/v1/models/context"), 422, "missing_required_parameter")
    wire.refused("/v1/models/context", 422, "missing_required_parameter")
    wire.refused("/v1/chat/completions", 400, "missing_required_parameter")
