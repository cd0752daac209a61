"""Faults behind the routes: engines that die, stores that fail, deletes that race."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.responses.api import Api, Serve, StartServer, events_of

DYING = {
    "rules": [{"match": "die", "pieces": ["a ", "b "], "exit_after": 1}],
    "default": {"echo": True},
}


def test_a_dying_engine_ends_its_stream_and_jobs_as_failed(serve: Serve) -> None:
    api = serve(script=DYING)
    events = api.stream(input="die")
    assert [event.name for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2].data["code"] == "engine_crashed"
    final = events[-1].data["response"]
    assert api.get(final["id"]) == final
    job = None
    while job is None:
        answer = api.post("/v1/responses", model="scripted", input="die", background=True)
        if answer.status_code == 503:
            assert "retry-after" in answer.headers
        else:
            job = answer.json()
    made = api.ended(job["id"])
    assert (made["status"], made["error"]["code"]) == ("failed", "server_error")


def test_a_store_that_fails_still_delivers_the_answer(
    start_server: StartServer, tmp_path: Path
) -> None:
    folder = tmp_path / "state"
    server = start_server("--store", "sqlite", "--data-dir", str(folder), script=DYING)
    with httpx.Client(base_url=server.url, timeout=60) as http:
        body: dict[str, Any] = {"model": "scripted", "input": "hello"}
        first = http.post("/v1/responses", json=body).json()
        holder = _lock_for_writing(folder / "state.sqlite")
        try:
            made = http.post("/v1/responses", json=body)
            assert made.status_code == 200
            lost = http.get(f"/v1/responses/{made.json()['id']}")
            assert (lost.status_code, lost.json()["error"]["code"]) == (503, "store_unavailable")
            assert "retry-after" in lost.headers
            stream = http.post("/v1/responses", json={**body, "stream": True})
            assert events_of(stream.text)[-1].name == "response.completed"
            refused = http.post("/v1/responses", json={**body, "background": True})
            assert refused.status_code == 503
        finally:
            holder.close()
        assert http.get(f"/v1/responses/{first['id']}").json() == first
        assert http.post("/v1/responses", json=body).status_code == 200


def _lock_for_writing(path: Path) -> Any:
    assert path.exists()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def test_delete_racing_finish_leaves_nothing_half_done(api: Api) -> None:
    def race(number: int) -> None:
        with httpx.Client(base_url=api.url, timeout=60) as http:
            body = {"model": "scripted", "input": f"race {number}", "background": True}
            path = f"/v1/responses/{http.post('/v1/responses', json=body).json()['id']}"
            while (answer := http.delete(path)).status_code == 400:
                assert answer.json()["error"]["code"] == "response_not_finished"
            assert answer.status_code == 200
            assert http.get(path).status_code == 404
            assert http.delete(path).status_code == 404

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(race, range(40)))


@pytest.mark.parametrize("events", range(0, 12, 3))
def test_a_client_may_leave_at_any_point(api: Api, events: int) -> None:
    body = {"model": "scripted", "input": "slow", "stream": True}
    seen: list[str] = []
    with api.http.stream("POST", "/v1/responses", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("event:"):
                seen.append(line)
            if len(seen) > events:
                break
    stopped = threading.Event()
    while not stopped.is_set():
        requests = api.http.get("/debug/scripted/scripted").json()["requests"]
        if all(request["status"] != "running" for request in requests):
            stopped.set()


def test_one_key_cannot_fill_anothers_history(serve: Serve) -> None:
    api = serve("--api-key", "one", "--api-key", "two")
    for key in ("one", "two"):
        api.http.headers["authorization"] = f"Bearer {key}"
        api.create(input=f"from-{key}", conversation="shared-name")
    assert "from-one" not in api.prompts()[-1]
