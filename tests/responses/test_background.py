"""Background jobs: their states, their limits, and the races that end them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.responses.api import Api, Serve, StartServer, text_of

TERMINAL = {"completed", "incomplete", "failed", "cancelled"}


def running(api: Api, response_id: str) -> None:
    """Wait until a job generates."""
    while api.get(response_id)["status"] == "queued":
        pass


def test_a_job_is_queued_then_polled_to_its_end(api: Api) -> None:
    job = api.create(input="in the background", background=True, metadata={"a": "b"})
    assert (job["status"], job["background"], job["output"]) == ("queued", True, [])
    assert job["usage"]["total_tokens"] == 0
    made = api.ended(job["id"])
    assert (made["status"], made["background"]) == ("completed", True)
    assert text_of(made) == "in the background"
    assert made["metadata"] == {"a": "b"}
    chained = api.create(input="x", previous_response_id=job["id"])
    assert chained["status"] == "completed"


def test_a_job_cut_by_its_limit_is_incomplete(api: Api) -> None:
    job = api.create(input="essay", background=True, max_output_tokens=3)
    made = api.ended(job["id"])
    assert (made["status"], made["incomplete_details"]["reason"]) == (
        "incomplete",
        "max_output_tokens",
    )


def test_c53_cancel_rules(api: Api) -> None:
    job = api.create(input="slow", background=True)
    running(api, job["id"])
    path = f"/v1/responses/{job['id']}"
    refused = api.http.delete(path)
    assert refused.status_code == 400
    waiting, error = api.refused(input="x", previous_response_id=job["id"])
    assert waiting == 400
    assert error["message"] == (
        f"previous response '{job['id']}' has not finished (status: in_progress)"
    )
    cancelled = api.http.post(f"{path}/cancel").json()
    assert cancelled["status"] == "cancelled"
    assert cancelled["output"][0]["status"] == "incomplete"
    assert api.http.post(f"{path}/cancel").json() == cancelled
    assert api.get(job["id"]) == cancelled
    finished = api.create(input="done")
    assert api.http.post(f"/v1/responses/{finished['id']}/cancel").json() == finished
    assert api.http.post("/v1/responses/resp_unknown/cancel").status_code == 404
    assert api.http.delete(path).json() == {
        "id": job["id"],
        "object": "response.deleted",
        "deleted": True,
    }


def test_create_refuses_what_a_foreground_request_is_refused_for(api: Api) -> None:
    for fields in (
        {"stream": True},
        {"max_output_tokens": 0},
        {"previous_response_id": "resp_unknown"},
        {"tools": [{"type": "web_search"}]},
        {"input": ""},
    ):
        status, error = api.refused(**{"input": "x", "background": True, **fields})
        assert (status, error["type"]) == (400, "invalid_request_error")
    status, _ = api.refused(input="x", background=True, model="absent")
    assert status == 404


def test_a_prompt_that_does_not_fit_ends_the_job(api: Api) -> None:
    job = api.create(input="x " * 3000, background=True)
    made = api.ended(job["id"])
    assert (made["status"], made["error"]["code"]) == ("failed", "invalid_prompt")
    assert made["output"] == []


def test_a_failing_engine_ends_the_job(api: Api) -> None:
    made = api.ended(api.create(input="boom", background=True)["id"])
    assert (made["status"], made["error"]["code"]) == ("failed", "server_error")


def test_the_limit_of_jobs_answers_429(serve: Serve) -> None:
    api = serve("--responses-background-max-jobs", "1")
    job = api.create(input="slow", background=True)
    response = api.post("/v1/responses", model="scripted", input="x", background=True)
    assert response.status_code == 429
    assert response.json()["error"]["code"] == "rate_limit_exceeded"
    assert "retry-after" in response.headers
    api.http.post(f"/v1/responses/{job['id']}/cancel")
    assert api.ended(api.create(input="x", background=True)["id"])["status"] == "completed"


def test_the_bytes_of_jobs_answer_429_and_a_large_result_fails(serve: Serve) -> None:
    api = serve("--responses-store-max-bytes", "6000")
    job = api.create(input="slow", background=True, max_output_tokens=100)
    response = api.post("/v1/responses", model="scripted", input="y" * 5000, background=True)
    assert (response.status_code, response.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    api.http.post(f"/v1/responses/{job['id']}/cancel")
    large = api.create(input="a " * 1000, background=True)
    made = api.ended(large["id"])
    assert (made["status"], made["error"]["code"], made["output"]) == ("failed", "server_error", [])


def test_no_jobs_when_they_are_disabled(serve: Serve) -> None:
    for flag in ("--responses-background-max-jobs", "--responses-store-max-bytes"):
        api = serve(flag, "0")
        status, _ = api.refused(input="x", background=True)
        assert status == 400
        assert api.create(input="x")["status"] == "completed"


def test_a_job_that_is_not_stored_stays_readable_but_is_no_history(serve: Serve) -> None:
    api = serve("--responses-background-ephemeral-ttl-secs", "2")
    job = api.create(input="x", background=True, store=False)
    api.ended(job["id"])
    status, error = api.refused(input="y", previous_response_id=job["id"])
    assert (status, error["code"]) == (400, "previous_response_not_found")
    while api.status(job["id"]) == 200:
        pass
    assert api.status(job["id"]) == 404


def test_a_conversation_is_continued_when_the_job_ends(api: Api) -> None:
    job = api.create(input="job-turn", background=True, conversation="of-jobs")
    api.ended(job["id"])
    api.ended(api.create(input="boom", background=True, conversation="of-jobs")["id"])
    items = api.http.get("/v1/conversations/of-jobs/items?order=asc").json()["data"]
    assert [item["content"][0]["text"] for item in items] == ["job-turn", "job-turn"]


def test_64_jobs_at_once_all_end(api: Api) -> None:

    def begin(number: int) -> dict[str, Any]:
        body = {"model": "scripted", "input": f"job {number}", "background": True}
        job: dict[str, Any] = httpx.post(f"{api.url}/v1/responses", json=body, timeout=60).json()
        return job

    with ThreadPoolExecutor(16) as pool:
        jobs = list(pool.map(begin, range(64)))
    texts = {api.ended(job["id"])["output"][0]["content"][0]["text"] for job in jobs}
    assert texts == {f"job {n}" for n in range(64)}


def test_cancel_racing_finish_has_one_end(api: Api) -> None:
    """Whatever wins, everybody sees the same end, and every place becomes free again."""

    def race(number: int) -> None:
        with httpx.Client(base_url=api.url, timeout=60) as http:
            body = {"model": "scripted", "input": f"race {number}", "background": True}
            job = http.post("/v1/responses", json=body).json()
            path = f"/v1/responses/{job['id']}"
            gate = threading.Barrier(2)

            def cancel() -> dict[str, Any]:
                gate.wait()
                answer: dict[str, Any] = http.post(f"{path}/cancel").json()
                return answer

            with ThreadPoolExecutor(1) as pool:
                cancelled = pool.submit(cancel)
                gate.wait()
                seen = httpx.get(f"{api.url}{path}", timeout=60).json()
                end = cancelled.result()
            assert end["status"] in TERMINAL
            assert http.get(path).json() == end
            assert seen["status"] not in TERMINAL or seen == end
            assert http.delete(path).status_code == 200

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(race, range(40)))
    jobs = [api.create(input="x", background=True) for _ in range(64)]
    assert {api.ended(job["id"])["status"] for job in jobs} == {"completed"}


def test_a_stopped_server_fails_what_it_must_stop(
    start_server: StartServer, tmp_path: Path
) -> None:
    script = {"default": {"pieces": ["x "], "repeat": 5000, "delay_ms": 20}}
    flags = ("--store", "sqlite", "--data-dir", str(tmp_path / "state"), "--drain-timeout", "1")
    server = start_server(*flags, script=script)
    body = {"model": "scripted", "input": "go", "background": True}
    job = httpx.post(f"{server.url}/v1/responses", json=body).json()
    assert server.stop() == 0
    server = start_server(*flags, script=script)
    made = httpx.get(f"{server.url}/v1/responses/{job['id']}").json()
    assert (made["status"], made["error"]["code"]) == ("failed", "server_error")
