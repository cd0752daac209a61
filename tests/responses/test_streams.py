"""Streams over HTTP: the ladder, faults, leavers, and what is replayed."""

from __future__ import annotations

import json
import threading

import httpx

from tests.responses.api import WEATHER, Api, Serve, events_of


def test_a_text_climbs_the_whole_ladder(api: Api) -> None:
    events = api.stream(input="one two")
    assert [event.name.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * sum(e.name.endswith("text.delta") for e in events),
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    final = events[-1].data["response"]
    assert api.get(final["id"]) == final
    assert {event.data["response"]["id"] for event in (events[0], events[1])} == {final["id"]}
    assert events[0].data["response"].keys() == final.keys()


def test_c37_numbers_run_from_zero_and_replay_the_same(api: Api) -> None:
    events = api.stream(input="weather", tools=[WEATHER])
    numbers = [event.data["sequence_number"] for event in events]
    assert numbers == list(range(len(events)))
    response_id = events[0].data["response"]["id"]
    assert api.replay(response_id) == events
    assert api.replay(response_id, starting_after=7) == events[8:]


def test_a_response_is_stored_before_its_terminal_event(api: Api) -> None:
    body = {"model": "scripted", "input": "quick", "stream": True}
    for _ in range(20):
        with api.http.stream("POST", "/v1/responses", json=body) as response:
            for line in response.iter_lines():
                if line.startswith('data: {"type":"response.completed"'):
                    final = json.loads(line.removeprefix("data: "))["response"]
                    assert httpx.get(f"{api.url}/v1/responses/{final['id']}").json() == final


def test_c34_a_failing_engine_is_told_in_both_shapes_and_stored(api: Api) -> None:
    events = api.stream(input="boom")
    assert [event.name for event in events[-2:]] == ["error", "response.failed"]
    error = events[-2].data
    assert error["message"] == error["error"]["message"]
    assert set(error["error"]) == {"message", "type", "param", "code"}
    final = events[-1].data["response"]
    assert final["error"]["code"] == "server_error"
    assert final["output"][0]["status"] == "incomplete"
    assert api.get(final["id"]) == final
    status, error = api.refused(input="boom")
    assert (status, error["type"]) == (500, "server_error")


def test_c38_a_cancelled_stream_ends_once(api: Api) -> None:
    body = {"model": "scripted", "input": "slow", "stream": True}
    with api.http.stream("POST", "/v1/responses", json=body) as response:
        chunks = response.iter_text()
        text = next(chunks)
        while "output_text.delta" not in text:
            text += next(chunks)
        response_id = json.loads(text.split("data: ", 1)[1].split("\n", 1)[0])["response"]["id"]
        polled = httpx.get(f"{api.url}/v1/responses/{response_id}").json()
        assert (polled["status"], polled["output"]) == ("in_progress", [])
        answer = httpx.post(f"{api.url}/v1/responses/{response_id}/cancel").json()
        text += "".join(chunks)
    events = events_of(text)
    assert events[-1].name == "response.incomplete"
    assert events[-1].data["response"] == answer
    assert answer["status"] == "cancelled"
    assert api.get(response_id) == answer
    assert api.replay(response_id) == events


def test_a_stream_that_is_not_stored_can_be_cancelled(api: Api) -> None:
    body = {"model": "scripted", "input": "slow", "stream": True, "store": False}
    with api.http.stream("POST", "/v1/responses", json=body) as response:
        chunks = response.iter_text()
        text = next(chunks)
        response_id = json.loads(text.split("data: ", 1)[1].split("\n", 1)[0])["response"]["id"]
        assert httpx.get(f"{api.url}/v1/responses/{response_id}").status_code == 404
        httpx.post(f"{api.url}/v1/responses/{response_id}/cancel").raise_for_status()
        text += "".join(chunks)
    assert events_of(text)[-1].data["response"]["status"] == "cancelled"
    assert api.status(response_id) == 404


def test_a_client_that_leaves_stops_its_stream(api: Api) -> None:
    body = {"model": "scripted", "input": "slow leaver", "stream": True}
    with api.http.stream("POST", "/v1/responses", json=body) as response:
        text = ""
        chunks = response.iter_text()
        while text.count("output_text.delta") < 3:
            text += next(chunks)
        response_id = json.loads(text.split("data: ", 1)[1].split("\n", 1)[0])["response"]["id"]
    while (left := api.get(response_id))["status"] == "in_progress":
        pass
    assert (left["status"], left["output"][0]["status"]) == ("incomplete", "incomplete")
    replayed = api.replay(response_id)
    assert replayed[-1].name == "response.incomplete"
    assert replayed[-1].data["response"] == left


def test_c39_a_running_stream_is_followed_from_where_it_was_left(api: Api) -> None:
    body = {"model": "scripted", "input": "slow", "stream": True, "max_output_tokens": 30}
    followed: list[str] = []
    with api.http.stream("POST", "/v1/responses", json=body) as response:
        chunks = response.iter_text()
        text = next(chunks)
        response_id = json.loads(text.split("data: ", 1)[1].split("\n", 1)[0])["response"]["id"]
        address = f"{api.url}/v1/responses/{response_id}?stream=true&starting_after=7"
        follower = threading.Thread(
            target=lambda: followed.append(httpx.get(address, timeout=60).text)
        )
        follower.start()
        text += "".join(chunks)
        follower.join()
    events = events_of(text)
    assert events_of(followed[0]) == events[8:]


def test_c39_odd_starts_of_a_replay(api: Api) -> None:
    events = api.stream(input="x")
    response_id = events[0].data["response"]["id"]
    assert api.replay(response_id, starting_after=99_999) == []
    path = f"/v1/responses/{response_id}"
    for query in ({"starting_after": -1}, {"starting_after": "x"}):
        answer = api.http.get(path, params={"stream": "true", **query})
        assert answer.status_code == 400
    assert api.http.get(path, params={"stream": "perhaps"}).status_code == 400
    whole = api.create(input="x")
    unstreamed = api.http.get(f"/v1/responses/{whole['id']}", params={"stream": "true"})
    assert unstreamed.status_code == 400
    assert api.http.get("/v1/responses/resp_x", params={"stream": "true"}).status_code == 404


def test_reasoning_is_told_as_the_server_is_set(serve: Serve) -> None:
    for kind, expected in (("summary", {"summary_text"}), ("both", {"text", "summary_text"})):
        events = serve("--reasoning-events", kind).stream(input="think")
        told = {
            event.name.removeprefix("response.reasoning_").removesuffix(".delta")
            for event in events
            if event.name.startswith("response.reasoning") and event.name.endswith(".delta")
        }
        assert told == expected
        reasoning = events[-1].data["response"]["output"][0]
        assert reasoning["summary"] == [{"type": "summary_text", "text": "a b"}]
