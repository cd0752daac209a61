"""What is remembered: chains, conversations, references, and whose it is."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx

from tests.responses.api import WEATHER, Api, Serve, StartServer, text_of


def test_c42_a_chain_remembers_every_turn(api: Api) -> None:
    previous = None
    for text in ("first-turn", "second-turn", "third-turn"):
        made = api.create(input=text, previous_response_id=previous, instructions=f"be {text}")
        previous = made["id"]
    prompt = api.prompts()[-1]
    assert prompt.index("first-turn") < prompt.index("second-turn") < prompt.rindex("third-turn")
    assert "be first-turn" not in prompt
    assert made["previous_response_id"] is not None


def test_a_descendant_keeps_its_history_when_an_ancestor_is_deleted(api: Api) -> None:
    root = api.create(input="root-text")
    child = api.create(input="child-text", previous_response_id=root["id"])
    api.http.delete(f"/v1/responses/{root['id']}")
    api.create(input="grandchild", previous_response_id=child["id"])
    assert "root-text" in api.prompts()[-1]
    status, error = api.refused(input="x", previous_response_id=root["id"])
    assert (status, error["code"]) == (400, "previous_response_not_found")


def test_a_tool_loop_goes_on_through_a_chain(api: Api) -> None:
    made = api.create(input="weather", tools=[WEATHER])
    call = made["output"][-1]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    again = api.create(input=[output], tools=[WEATHER], previous_response_id=made["id"])
    assert again["status"] == "completed"
    assert "sunny" in api.prompts()[-1]


def test_c43_store_false_keeps_nothing(api: Api) -> None:
    made = api.create(input="hi", store=False)
    assert made["store"] is False
    assert api.status(made["id"]) == 404
    status, error = api.refused(input="x", previous_response_id=made["id"])
    assert (status, error["code"]) == (400, "previous_response_not_found")
    replayed = [{"role": "user", "content": "hi"}, *made["output"]]
    again = api.create(input=[*replayed, {"role": "user", "content": "more"}], store=False)
    assert text_of(again) == "more"


def test_items_are_found_by_reference(api: Api) -> None:
    made = api.create(input="referenced-text")
    (message,) = made["output"]
    api.create(
        input=[{"type": "item_reference", "id": message["id"]}, {"role": "user", "content": "q"}]
    )
    assert "referenced-text" in api.prompts()[-1]
    api.create(input=[{"id": message["id"]}, {"role": "user", "content": "q"}])
    assert "referenced-text" in api.prompts()[-1]


def test_a_conversation_is_read_and_appended(api: Api) -> None:
    body = {"items": [{"role": "user", "content": "from-the-start"}], "metadata": {"a": "b"}}
    made = api.post("/v1/conversations", **body).json()
    assert (made["object"], made["metadata"]) == ("conversation", {"a": "b"})
    first = api.create(input="turn-one", conversation=made["id"])
    assert first["conversation"] == {"id": made["id"]}
    api.create(input="turn-two", conversation={"id": made["id"]})
    prompt = api.prompts()[-1]
    assert prompt.index("from-the-start") < prompt.index("turn-one") < prompt.rindex("turn-two")
    items = api.http.get(f"/v1/conversations/{made['id']}/items?order=asc").json()["data"]
    assert [item["role"] for item in items] == ["user", "user", "assistant", "user", "assistant"]
    assert len({item["id"] for item in items}) == len(items)


def test_any_conversation_id_begins_on_its_first_turn(api: Api) -> None:
    assert api.http.get("/v1/conversations/my-own").status_code == 404
    api.create(input="hello", conversation="my-own", store=False)
    assert api.http.get("/v1/conversations/my-own").status_code == 404
    api.create(input="hello", conversation="my-own")
    assert api.http.get("/v1/conversations/my-own").status_code == 200
    assert api.http.delete("/v1/conversations/my-own").json()["deleted"] is True
    api.create(input="afresh", conversation="my-own")
    assert len(api.http.get("/v1/conversations/my-own/items").json()["data"]) == 2


def test_a_response_of_a_conversation_can_be_chained(api: Api) -> None:
    api.create(input="one-of-three", conversation="chained")
    second = api.create(input="two-of-three", conversation="chained")
    api.create(input="three", previous_response_id=second["id"])
    prompt = api.prompts()[-1]
    assert "one-of-three" in prompt
    assert prompt.count("two-of-three") == 2  # said and echoed


def test_conversations_and_their_items_are_edited(api: Api) -> None:
    made = api.post("/v1/conversations").json()
    path = f"/v1/conversations/{made['id']}"
    added = api.post(f"{path}/items", items=[{"role": "user", "content": "x"}] * 2).json()
    assert added["object"] == "list"
    one = added["data"][0]["id"]
    assert api.http.get(f"{path}/items/{one}").json()["id"] == one
    assert api.http.delete(f"{path}/items/{one}").json()["id"] == made["id"]
    assert api.http.get(f"{path}/items/{one}").status_code == 404
    assert api.http.delete(f"{path}/items/{one}").status_code == 404
    assert api.post(path, metadata={"k": "v"}).json()["metadata"] == {"k": "v"}
    many = [{"role": "user", "content": "x"}] * 21
    assert api.post(f"{path}/items", items=many).status_code == 400
    assert api.http.delete(path).json()["object"] == "conversation.deleted"
    for method in ("GET", "DELETE", "POST"):
        assert api.http.request(method, path, json={}).status_code == 404


def test_disabled_stores_answer_400(serve: Serve) -> None:
    api = serve("--responses-store-max-entries", "0", "--conversation-store-max-entries", "0")
    made = api.create(input="hi")
    path = f"/v1/responses/{made['id']}"
    for response in (
        api.http.get(path),
        api.http.delete(path),
        api.http.post(f"{path}/cancel"),
        api.post("/v1/responses", model="scripted", input="x", previous_response_id="resp_x"),
        api.post("/v1/responses", model="scripted", input="x", background=True),
        api.post("/v1/responses", model="scripted", input="x", conversation="c"),
        api.post("/v1/conversations"),
    ):
        assert response.status_code == 400, response.text
        assert "-store-max-entries" in response.json()["error"]["message"]


def test_state_belongs_to_its_key(serve: Serve) -> None:
    api = serve("--api-key", "one", "--api-key", "two")
    mine, other = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
    body = {"model": "scripted", "input": "secret"}
    made = api.http.post("/v1/responses", json=body, headers=mine).json()
    path = f"/v1/responses/{made['id']}"
    assert api.http.get(path, headers=mine).status_code == 200
    assert api.http.get(path, headers=other).status_code == 404
    assert api.http.delete(path, headers=other).status_code == 404
    assert api.http.post(f"{path}/cancel", headers=other).status_code == 404
    chained = {**body, "previous_response_id": made["id"]}
    assert api.http.post("/v1/responses", json=chained, headers=other).status_code == 400


def test_c42_sqlite_keeps_responses_over_a_kill(start_server: StartServer, tmp_path: Path) -> None:
    script = {"default": {"echo": True}, "rules": [
        {"match": "slow", "pieces": ["x "], "repeat": 2000, "delay_ms": 20}]}  # fmt: skip
    flags = ("--store", "sqlite", "--data-dir", str(tmp_path / "state"))
    server = start_server(*flags, script=script)
    body = {"model": "scripted", "input": "remember-me"}
    made = httpx.post(f"{server.url}/v1/responses", json=body).json()
    job = httpx.post(
        f"{server.url}/v1/responses", json={**body, "input": "slow", "background": True}
    ).json()
    server.stop(signal.SIGKILL)
    server = start_server(*flags, script=script)
    assert httpx.get(f"{server.url}/v1/responses/{made['id']}").json() == made
    chained = {**body, "input": "next", "previous_response_id": made["id"]}
    httpx.post(f"{server.url}/v1/responses", json=chained).raise_for_status()
    seen = httpx.get(f"{server.url}/debug/scripted/scripted").json()["requests"]
    assert "remember-me" in seen[-1]["prompt"]
    lost = httpx.get(f"{server.url}/v1/responses/{job['id']}").json()
    assert (lost["status"], lost["error"]["code"]) == ("failed", "server_error")
