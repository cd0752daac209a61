"""Registering, converting, fetching, deleting and removing models over HTTP."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.native.conftest import Json, MakeWire, Wire, refusal
from tests.sources.hub_server import HubModel, HubServer, running_hub, safetensors

QUICK: list[list[object]] = [["downloading", 40], ["converting", 60], ["finalizing", 10]]
SLOW: list[list[object]] = [["downloading", 100], ["converting", 60_000]]
REGISTER, CONVERT = "/v1/models/register", "/v1/models/convert"
DOWNLOAD, CANCEL, DELETE = "/v1/models/download-custom", "/v1/models/cancel", "/v1/models/delete"
IR: dict[str, bytes] = {
    "config.json": b'{"model_type": "llama", "max_position_embeddings": 2048}',
    "openvino_model.xml": b"<net></net>",
    "openvino_model.bin": b"w" * 5000,
    "openvino_tokenizer.xml": b"<net></net>",
    "openvino_tokenizer.bin": b"t" * 10,
    "openvino_detokenizer.xml": b"<net></net>",
    "openvino_detokenizer.bin": b"d" * 10,
}


@pytest.fixture(scope="module")
def the_hub() -> object:
    with running_hub() as server:
        server.models["org/ir"] = HubModel(dict(IR), tags=["license:mit"])
        server.models["org/weights"] = HubModel(
            {"config.json": IR["config.json"], "model.safetensors": safetensors(4000)}
        )
        server.models["org/gated"] = HubModel(dict(IR), gated=True)
        yield server


@pytest.fixture(scope="module")
def wire(make_wire: MakeWire, the_hub: HubServer) -> Wire:
    return make_wire(
        {
            "one": {"convert_phases": QUICK},
            "slow": {"convert_phases": SLOW},
            "loaded": {"convert_phases": QUICK},
        },
        "--disable",
        "optimum_intel",
        entries={"loaded": {"autostart": True}},
        env={"HF_ENDPOINT": the_hub.url, "HF_TOKEN": ""},
    )


def scripted(wire: Wire, name: str, **script: object) -> Json:
    """Describe a new model that follows a script of its own."""
    wire.script(name, **script)
    source = f"scripted:{wire.folder / name}.json"
    return {"model_id": name, "backend": "scripted", "source_model": source}


def forget(wire: Wire, model: str) -> None:
    assert wire.client.delete(f"/v1/models/{model}").status_code in {200, 404}


def files_of(wire: Wire, model: str) -> Path:
    return wire.server.folder / "data" / "models" / model


def test_a_registered_model_is_in_the_catalogue_and_can_be_loaded(wire: Wire) -> None:
    body = scripted(wire, "new", context_tokens=4096)
    told = wire.post(
        REGISTER, **body, name="The new one", max_context_len=2048, max_output_tokens=100
    )
    assert (told["status"], told["model_id"]) == ("registered", "new")
    assert told["model"]["name"] == "The new one"
    assert told["model"]["status"] == "ready_to_load"
    entry = wire.catalogued("new")
    assert entry is not None
    assert (entry["max_context_len"], entry["max_output_tokens"]) == (2048, 100)
    assert entry["trust_remote_code"] is False
    # The same once more is no fault.
    again = wire.post(REGISTER, **body, name="The new one")
    assert again["model"]["revision"] == told["model"]["revision"]
    wire.post("/v1/models/load", model="new")
    wire.wait("new", "loaded")
    refusal(wire.client.delete("/v1/models/new"), 409, "model_loaded")
    wire.unload("new")
    removed = wire.client.delete("/v1/models/new").json()
    assert (removed["id"], removed["deleted"]) == ("new", True)
    assert wire.catalogued("new") is None
    refusal(wire.client.get("/v1/models/new"), 404, "model_not_found")
    refusal(wire.client.delete("/v1/models/new"), 404, "model_not_found")


@pytest.mark.parametrize(
    "model_id",
    [
        "../x",
        "..",
        "CON",
        "con.txt",
        "LPT1",
        "x.",
        "x" * 129,
        "a/b",
        "a\\b",
        ".x",
        "-x",
        "é",
        "auto",
    ],
)
def test_edge_68_an_id_that_is_no_file_name_is_refused(wire: Wire, model_id: str) -> None:
    before = (wire.folder / "models.json").read_bytes()
    body = {"model_id": model_id, "backend": "scripted", "source_model": "scripted:x.json"}
    error = wire.refused(REGISTER, 400, "invalid_model_id", **body)
    assert error["param"] == "model_id"
    wire.refused(DOWNLOAD, 400, "invalid_model_id", **body)
    assert (wire.folder / "models.json").read_bytes() == before


def test_edge_101_ids_are_unique_ignoring_case(wire: Wire) -> None:
    for model_id in ("ONE", "One"):
        body = scripted(wire, "another") | {"model_id": model_id}
        wire.refused(REGISTER, 409, "model_exists", **body)
        wire.refused(DOWNLOAD, 409, "model_exists", **body)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"model_id": None}, "model_id"),
        ({"model_id": 5}, "model_id"),
        ({"source_model": ""}, "source_model"),
        ({"source_model": "x" * 241}, "source_model"),
        ({"name": ""}, "name"),
        ({"name": "x" * 161}, "name"),
        ({"name": "  "}, "name"),
        ({"name": "red\x1b[31m"}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"source_model": "\x00"}, "source_model"),
        ({"source_model": "org/ir\x1b[2J"}, "source_model"),
        ({"description": "a bell\x07"}, "description"),
        ({"weight_format": "int3"}, "weight_format"),
        ({"max_context_len": 127}, "max_context_len"),
        ({"max_context_len": 262_145}, "max_context_len"),
        ({"max_context_len": "2048"}, "max_context_len"),
        ({"max_context_len": 2048.0}, "max_context_len"),
        ({"max_context_len": True}, "max_context_len"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"max_output_tokens": 65_537}, "max_output_tokens"),
        ({"max_output_tokens": 0}, None),
        ({"max_output_tokens": 2048, "max_context_len": 2048}, None),
        ({"backend": "openvino-embeddings", "max_output_tokens": 5}, None),
        ({"trust_remote_code": 1}, "trust_remote_code"),
        ({"trust_remote_code": "true"}, "trust_remote_code"),
        ({"gadget": True}, None),
    ],
)
def test_a_registration_is_strict(wire: Wire, changes: Json, param: str | None) -> None:
    body = {"model_id": "strict", "source_model": "org/ir"} | changes
    for path in (REGISTER, DOWNLOAD):
        answer = wire.client.post(path, json=body)
        assert answer.status_code == 422, answer.text
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert param is None or answer.json()["error"]["param"] == param
    assert wire.catalogued("strict") is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"backend": "nonsense"}, "unknown_backend"),
        ({"source_model": "file:///etc/passwd"}, "unknown_source"),
        ({"recommended_device": "GPU.x"}, "invalid_device"),
        ({"recommended_device": ""}, "invalid_device"),
    ],
)
def test_what_nobody_understands_is_400(wire: Wire, changes: Json, code: str) -> None:
    body = {"model_id": "strange", "source_model": "org/ir"} | changes
    for path in (REGISTER, DOWNLOAD):
        wire.refused(path, 400, code, **body)
    assert wire.catalogued("strange") is None


def test_a_conversion_is_acknowledged_told_and_loaded(wire: Wire) -> None:
    cursor = wire.get("/v1/system/status")["events_cursor"]
    told = wire.post(CONVERT, model="one", weight_format="int4", trust_remote_code=None)
    assert (told["status"], told["model_id"]) == ("queued_convert", "one")
    assert told["operation_id"].startswith("convert-")
    assert told["model"]["progress"]["operation_id"] == told["operation_id"]
    assert told["model"]["is_loading"] is True
    # Said twice, done once.
    again = wire.post(CONVERT, model="one", weight_format="int4")
    assert (again["status"], again["operation_id"]) == ("queued_convert", told["operation_id"])
    shown = wire.wait("one", "loaded", "error")
    assert shown["status"] == "loaded", shown["error"]
    assert (shown["weight_format"], shown["progress"]["operation_type"]) == ("int4", "load")
    assert files_of(wire, "one").is_dir()
    with wire.events(after=cursor) as events:
        next(events)
        seen: list[Json] = []
        for event in events:
            seen.append(event)
            if event["event"] == "state" and event["data"]["data"]["state"] == "loaded":
                break
    states = [e["data"]["data"]["state"] for e in seen if e["event"] == "state"]
    assert states == [
        "queued",
        "downloading",
        "converting",
        "finalizing",
        "ready_to_load",
        "loading",
        "loaded",
    ]
    wire.refused(CONVERT, 409, "model_loaded", model="one")
    wire.refused(DELETE, 409, "model_loaded", model="one")
    wire.unload("one")


def test_a_conversion_can_end_without_a_load(wire: Wire) -> None:
    wire.unload("one")
    wire.post(CONVERT, model="one", weight_format="int8", load_after=False)
    shown = wire.wait("one", "ready_to_load", "error")
    assert (shown["status"], shown["weight_format"]) == ("ready_to_load", "int8")
    assert shown["progress"]["phase"] == "ready"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"model": "nobody"}, 404),
        ({"weight_format": "int3"}, 422),
        ({"group_size": "128"}, 422),
        ({"group_size": -2}, 422),
        ({"group_size": 1.0}, 422),
        ({"ratio": 1.1}, 422),
        ({"ratio": "1"}, 422),
        ({"sym": 1}, 422),
        ({"load_after": "yes"}, 422),
        ({"trust_remote_code": "true"}, 422),
        ({"trust_remote_code": 1}, 422),
        ({"device": "GPU.x"}, 400),
        ({"gadget": 1}, 422),
    ],
)
def test_a_conversion_is_strict(wire: Wire, changes: Json, status: int) -> None:
    answer = wire.client.post(CONVERT, json={"model": "one"} | changes)
    assert answer.status_code == status, answer.text
    assert wire.model("one")["is_loading"] is False


def test_edge_62_a_cancelled_conversion_leaves_nothing(wire: Wire) -> None:
    told = wire.post(CONVERT, model="slow")
    shown = wire.wait("slow", "converting")
    assert shown["can_cancel"] is True
    assert 0 <= shown["progress"]["percent"] <= 100
    wire.refused(DELETE, 409, "model_busy", model="slow")
    refusal(wire.client.delete("/v1/models/slow"), 409, "model_busy")
    assert wire.client.get("/health/ready").status_code == 503
    named = {"model": "slow", "operation_id": told["operation_id"]}
    cancelled = wire.post(CANCEL, **named)
    assert (cancelled["status"], cancelled["operation_type"]) == ("cancelled", "convert")
    assert (cancelled["operation_id"], cancelled["model_id"]) == (told["operation_id"], "slow")
    assert cancelled["model"]["status"] == "cancelled"
    assert wire.post(CANCEL, **named)["already_cancelled"] is True
    children = psutil.Process(wire.server.pid).children(recursive=True)
    lines = [" ".join(child.cmdline()) for child in children if child.is_running()]
    assert not [line for line in lines if "slow" in line]
    models = files_of(wire, "slow").parent
    assert not [path for path in models.glob("*") if "slow" in path.name]


def test_edge_67_only_what_is_the_models_own_is_deleted(wire: Wire, tmp_path: Path) -> None:
    wire.post(CONVERT, model="one", load_after=False)
    wire.wait("one", "ready_to_load")
    assert files_of(wire, "one").is_dir()
    deleted = wire.post(DELETE, model="one")
    assert deleted["status"] == "deleted"
    assert deleted["freed_bytes"] > 0
    assert deleted["freed_gb"] == deleted["freed_bytes"] / 1e9
    assert not files_of(wire, "one").exists()
    # The script is the user's, and the entry stays.
    assert (wire.folder / "one.json").exists()
    assert wire.catalogued("one") is not None
    again = wire.post(DELETE, model="one")
    assert (again["status"], again["freed_bytes"], again["freed_gb"]) == ("noop", 0, 0.0)
    wire.refused(DELETE, 404, "model_not_found", model="..")
    wire.refused(DELETE, 404, "model_not_found", model="../models")
    wire.refused(DELETE, 409, "model_loaded", model="loaded")
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("mine")
    files_of(wire, "one").symlink_to(kept)
    try:
        wire.refused(DELETE, 409, "model_files_linked", model="one")
    finally:
        files_of(wire, "one").unlink()
    assert (kept / "file").read_text() == "mine"


def test_edge_71_a_download_that_is_said_twice_is_done_once(wire: Wire) -> None:
    body = scripted(wire, "custom", convert_phases=QUICK) | {"weight_format": "int4"}
    first = wire.post(DOWNLOAD, **body, load_after=False)
    assert first["status"] == "queued_convert"
    second = wire.post(DOWNLOAD, **body, load_after=False)
    assert second["operation_id"] in {first["operation_id"], None}
    wire.wait("custom", "ready_to_load")
    third = wire.post(DOWNLOAD, **body, load_after=False)
    assert (third["status"], third["operation_id"]) == ("ready_to_load", None)
    for changed in ({"weight_format": "int8"}, {"max_context_len": 4096}, {"name": "Other"}):
        error = wire.refused(DOWNLOAD, 409, "model_exists", **(body | changed))
        assert next(iter(changed)) in error["message"]
    loading = wire.post(DOWNLOAD, **body)
    assert loading["status"] == "loading"
    wire.wait("custom", "loaded")
    wire.unload("custom")
    forget(wire, "custom")


def test_a_repository_of_openvino_files_is_fetched_and_not_converted(wire: Wire) -> None:
    body = {"model_id": "ir", "source_model": "org/ir", "load_after": False}
    told = wire.post(DOWNLOAD, **body)
    assert told["status"] == "queued_convert"
    assert told["operation_id"].startswith("download-")
    shown = wire.wait("ir", "ready_to_load", "error")
    assert (shown["status"], shown["progress"]["phase"]) == ("ready_to_load", "ready"), shown
    assert shown["source_model"] == "hf:org/ir"
    forget(wire, "ir")


def test_a_converter_that_is_not_there_is_501_with_the_command(wire: Wire) -> None:
    body = {"model_id": "weights", "source_model": "org/weights"}
    error = wire.refused(DOWNLOAD, 501, "converter_not_installed", **body)
    assert "pegboard" in error["message"]
    # What was refused left no entry behind.
    assert wire.catalogued("weights") is None
    wire.post(REGISTER, **body)
    wire.refused(CONVERT, 501, "converter_not_installed", model="weights")
    assert wire.model("weights")["status"] == "not_downloaded"
    forget(wire, "weights")


@pytest.mark.parametrize(
    ("source", "code"), [("org/gated", "hf_token_missing"), ("org/none", "hf_model_not_found")]
)
def test_what_the_hub_denies_is_409_and_leaves_no_entry(wire: Wire, source: str, code: str) -> None:
    body = {"model_id": "denied", "source_model": source}
    wire.refused(DOWNLOAD, 409, code, **body)
    assert wire.catalogued("denied") is None


def test_without_a_network_a_download_is_502_in_time(make_wire: MakeWire) -> None:
    wire = make_wire({})
    body = {"model_id": "far", "source_model": "org/ir"}
    wire.refused(DOWNLOAD, 502, "hub_unreachable", **body)
    assert wire.get("/v1/models")["data"] == []
    wire.post(REGISTER, **body)
    wire.refused(CONVERT, 502, "hub_unreachable", model="far")
    wire.refused("/v1/models/load", 409, "model_not_downloaded", model="far")
    assert wire.model("far")["can_convert"] is True


def test_edge_72_what_comes_late_changes_nothing(wire: Wire) -> None:
    told = wire.post(CONVERT, model="slow")
    wire.wait("slow", "converting")
    wire.post(CANCEL, model="slow", operation_id=told["operation_id"])
    cursor = wire.get("/v1/system/status")["events_cursor"]
    shown = wire.model("slow")
    again = wire.post(CONVERT, model="slow")
    assert again["operation_id"] != told["operation_id"]
    assert again["revision"] > shown["revision"]
    stale = {"model": "slow", "operation_id": told["operation_id"]}
    wire.refused(CANCEL, 409, "stale_operation", **stale)
    wire.post(CANCEL, model="slow", operation_id=again["operation_id"])
    with wire.events(after=cursor) as events:
        next(events)
        for event in events:
            progress: Json = event["data"]["data"].get("progress") or {}
            assert progress.get("operation_id") in {None, again["operation_id"]}
            if event["data"]["data"].get("state") == "cancelled":
                break
