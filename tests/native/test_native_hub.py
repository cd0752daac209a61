"""The account at the hub, the search and the check of access, against a hub of our own."""

from __future__ import annotations

import time

import pytest

from tests.native.conftest import Json, MakeWire, Wire, refusal
from tests.sources.hub_server import STRANGER, TOKEN, HubModel, HubServer, running_hub

STATUS, ACCOUNT = "/v1/huggingface/status", "/v1/huggingface/token"
TEST, PREFLIGHT = "/v1/huggingface/test", "/v1/huggingface/preflight"
SEARCH = "/v1/models/search-hf"
FILES = {"openvino_model.xml": b"<net></net>", "openvino_model.bin": b"w", "config.json": b"{}"}


@pytest.fixture(scope="module")
def the_hub() -> object:
    with running_hub() as server:
        server.models["org/open-model"] = HubModel(
            dict(FILES), downloads=5, tags=["license:mit", "openvino"]
        )
        server.models["org/gated-model"] = HubModel(
            dict(FILES), gated=True, downloads=9, tags=["openvino"]
        )
        server.models["org/vectors"] = HubModel(
            dict(FILES), tags=["openvino"], pipeline_tag="sentence-similarity"
        )
        yield server


@pytest.fixture(scope="module")
def wire(make_wire: MakeWire, the_hub: HubServer) -> Wire:
    entries = {"mine": {"source_model": "hf:org/open-model"}}
    return make_wire({"one": {}}, entries=entries, env={"HF_ENDPOINT": the_hub.url, "HF_TOKEN": ""})


def delete_token(wire: Wire) -> Json:
    answer = wire.client.delete(ACCOUNT)
    assert answer.status_code == 200
    found: Json = answer.json()
    return found


def test_edge_91_a_token_is_verified_kept_and_never_shown(wire: Wire, the_hub: HubServer) -> None:
    delete_token(wire)
    assert wire.get(STATUS)["status"] == "not_configured"
    told = wire.post(ACCOUNT, token=TOKEN)
    assert (told["status"], told["username"], told["removable"]) == ("connected", "somebody", True)
    assert told["token_masked"] == "•" * 8
    assert wire.post(TEST)["status"] == "connected"
    assert wire.post(PREFLIGHT, source_model="org/gated-model")["granted"] is True
    texts = [wire.client.get(path).text for path in (STATUS, "/v1/system/status", "/v1/models")]
    for text in (*texts, str(told), wire.server.log()):
        assert TOKEN not in text
        assert TOKEN[5:] not in text
    assert any(seen.headers.get("authorization") == f"Bearer {TOKEN}" for seen in the_hub.seen)
    removed = delete_token(wire)
    assert (removed["removed"], removed["status"]) == (True, "not_configured")
    assert delete_token(wire)["removed"] is False


@pytest.mark.parametrize(
    ("token", "status", "code"),
    [
        ("hf_" + "Wrong0123456789", 400, "hf_token_invalid"),
        ("no_token_of_the_hub", 400, "hf_token_invalid"),
        ("hf_" + "a b c d e f g h", 400, "hf_token_invalid"),
        ("hf_x", 422, "invalid_value"),
        ("hf_" + "x" * 501, 422, "invalid_value"),
        (5, 422, "invalid_value"),
        (None, 422, "invalid_value"),
    ],
)
def test_a_token_that_is_none_is_refused_and_not_repeated(
    wire: Wire, token: object, status: int, code: str
) -> None:
    answer = wire.client.post(ACCOUNT, json={"token": token})
    refusal(answer, status, code)
    assert not isinstance(token, str) or token not in answer.text
    assert wire.get(STATUS)["configured"] is False


def test_a_token_of_the_environment_is_used_and_not_removed(
    make_wire: MakeWire, the_hub: HubServer
) -> None:
    wire = make_wire({}, env={"HF_ENDPOINT": the_hub.url, "HF_TOKEN": STRANGER})
    shown = wire.get(STATUS)
    assert (shown["source"], shown["removable"]) == ("environment", False)
    assert wire.post(TEST)["username"] == "stranger"
    removed = delete_token(wire)
    assert (removed["removed"], removed["source"]) == (False, "environment")
    denied = wire.client.post(PREFLIGHT, json={"source_model": "org/gated-model"})
    assert denied.status_code == 409
    assert denied.json()["access"]["granted"] is False
    assert denied.json()["access"]["action"] != "none"
    assert STRANGER not in wire.client.get(STATUS).text + denied.text + wire.server.log()


def test_a_test_without_a_token_is_409(wire: Wire) -> None:
    delete_token(wire)
    error = wire.refused(TEST, 409, "hf_token_missing")
    assert ACCOUNT in error["message"]


def test_the_check_of_access_says_what_to_do(wire: Wire) -> None:
    delete_token(wire)
    granted = wire.post(PREFLIGHT, source_model="org/open-model")
    assert (granted["granted"], granted["code"]) == (True, "hf_access_granted")
    assert granted["access_type"] == "public"
    assert granted["size_bytes"] == sum(map(len, FILES.values()))
    by_model = wire.post(PREFLIGHT, model_id="mine")
    assert by_model["source_model"] == granted["source_model"]
    assert wire.post(PREFLIGHT, model_id="one")["access_type"] == "local"
    denied = wire.client.post(PREFLIGHT, json={"source_model": "org/gated-model"})
    error = refusal(denied, 409, "hf_token_missing")
    access = denied.json()["access"]
    assert (access["code"], access["action"]) == (error["code"], "configure_token")
    assert access["access_type"] == "gated"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"source_model": "bad"}, 400, "hf_model_id_invalid"),
        ({"source_model": "../../etc/passwd"}, 400, "hf_model_id_invalid"),
        ({"source_model": "https://example.com/a/b"}, 400, "hf_model_id_invalid"),
        ({"source_model": "hf:"}, 400, "hf_model_id_invalid"),
        ({"source_model": "a b/c"}, 400, "hf_model_id_invalid"),
        ({"source_model": ""}, 422, "invalid_value"),
        ({"model_id": "nobody"}, 404, "model_not_found"),
        ({"source_model": "org/open-model", "access_type": "gated"}, 422, "invalid_value"),
    ],
)
def test_edge_90_an_address_that_is_none_is_refused(
    wire: Wire, body: Json, status: int, code: str
) -> None:
    refusal(wire.client.post(PREFLIGHT, json=body), status, code)


@pytest.mark.parametrize("body", [{}, {"model_id": "mine", "source_model": "org/open-model"}])
def test_one_of_two_names_is_wanted(wire: Wire, body: Json) -> None:
    answer = wire.client.post(PREFLIGHT, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "source_model"


def test_the_search_lists_the_most_downloaded_first(wire: Wire) -> None:
    answer = wire.client.get(SEARCH, params={"query": " model "})
    hits = answer.json()
    assert [hit["id"] for hit in hits] == ["org/gated-model", "org/open-model"]
    assert set(hits[0]) >= {
        "id",
        "suggested_local_id",
        "downloads",
        "likes",
        "pipeline_tag",
        "backend",
        "tags",
    }
    assert [hit["downloads"] for hit in hits] == [9, 5]
    one = wire.client.get(SEARCH, params={"query": "model", "limit": 1}).json()
    assert len(one) == 1
    vectors = wire.client.get(SEARCH, params={"query": "vec", "task": "embeddings"}).json()
    assert [hit["backend"] for hit in vectors] == ["openvino-embeddings"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 422),
        ({"query": ""}, 422),
        ({"query": "   "}, 400),
        ({"query": "x" * 201}, 422),
        ({"query": "x", "limit": 0}, 422),
        ({"query": "x", "limit": 51}, 422),
        ({"query": "x", "limit": "many"}, 422),
        ({"query": "x", "task": "y" * 81}, 422),
    ],
)
def test_a_search_for_nothing_is_refused(wire: Wire, query: Json, status: int) -> None:
    answer = wire.client.get(SEARCH, params=query)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] in query or not query


def test_without_a_network_every_answer_is_502_in_time(make_wire: MakeWire) -> None:
    wire = make_wire({}, env={"HF_TOKEN": TOKEN})
    began = time.monotonic()
    for method, path, body in (
        ("POST", ACCOUNT, {"token": TOKEN}),
        ("POST", TEST, None),
        ("POST", PREFLIGHT, {"source_model": "org/open-model"}),
        ("GET", f"{SEARCH}?query=x", None),
    ):
        error = refusal(wire.client.request(method, path, json=body), 502, "hub_unreachable")
        assert TOKEN not in error["message"]
    assert time.monotonic() - began < 30
    # What asks nobody is answered.
    assert wire.get(STATUS)["configured"] is True
    assert wire.get("/v1/models/suggested")["data"]


def test_a_hub_that_says_nothing_is_502_in_time(make_wire: MakeWire) -> None:
    with running_hub() as silent:
        silent.silence = 60.0
        env = {"HF_ENDPOINT": silent.url, "PEGBOARD_PLUGINS__HUB__TIMEOUT": "1"}
        wire = make_wire({}, env=env)
        began = time.monotonic()
        refusal(wire.client.get(SEARCH, params={"query": "x"}), 502, "hub_unreachable")
        assert time.monotonic() - began < 10
        silent.speak.set()


def test_without_the_plugin_the_routes_say_so(make_wire: MakeWire) -> None:
    wire = make_wire({}, "--disable", "hub")
    error = refusal(wire.client.get(STATUS), 501, "not_supported")
    assert "hub" in error["message"]
    refusal(wire.client.get(SEARCH, params={"query": "x"}), 501, "not_supported")
