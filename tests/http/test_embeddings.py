"""Embeddings and rerank over real servers with scripted models."""

from __future__ import annotations

import asyncio
import base64
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

DIMENSIONS = 8
EMBEDDING: dict[str, Any] = {"embedding": {"dimensions": DIMENSIONS}, "context_tokens": 16}
RERANK: dict[str, Any] = {"rerank": {}, "context_tokens": 16}
TEXT: dict[str, Any] = {"default": {"echo": True}}


@pytest.fixture
def embedding_url(scripted_server: Callable[..., str]) -> str:
    return scripted_server(EMBEDDING)


@pytest.fixture
def rerank_url(scripted_server: Callable[..., str]) -> str:
    return scripted_server(RERANK)


@pytest.fixture
def sdk(embedding_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{embedding_url}/v1", api_key="dummy", max_retries=0) as client:
        yield client


def post(url: str, path: str, **body: object) -> httpx.Response:
    return httpx.post(url + path, json={"model": "scripted", **body}, timeout=30)


def embed(url: str, **body: object) -> list[Any]:
    response = post(url, "/v1/embeddings", **body)
    assert response.status_code == 200, response.text
    return [entry["embedding"] for entry in response.json()["data"]]


def error(response: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


def test_c97_base64_is_the_float_form(embedding_url: str, sdk: OpenAI) -> None:
    (numbers,) = embed(embedding_url, input="hi there")
    (encoded,) = embed(embedding_url, input="hi there", encoding_format="base64")
    raw = base64.b64decode(encoded)
    assert list(struct.unpack(f"<{DIMENSIONS}f", raw)) == pytest.approx(numbers, abs=1e-7)
    assert math.hypot(*numbers) == pytest.approx(1, abs=1e-6)
    # The SDK asks for base64 unless told otherwise.
    answer = sdk.embeddings.create(model="scripted", input="hi there")
    assert answer.data[0].embedding == pytest.approx(numbers, abs=1e-7)
    assert (answer.object, answer.model) == ("list", "scripted")
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (2, 2)
    refused = post(embedding_url, "/v1/embeddings", input="hi", encoding_format="bits")
    assert (refused.status_code, error(refused)["param"]) == (422, "encoding_format")


def test_c98_token_ids_are_inputs(embedding_url: str) -> None:
    (one,) = embed(embedding_url, input=[15339, 1917])
    both = embed(embedding_url, input=[[15339, 1917], [100]])
    assert both[0] == one
    assert both[1] != one


def test_c99_dimensions_of_a_model_not_trained_for_it(embedding_url: str) -> None:
    assert len(embed(embedding_url, input="x", dimensions=DIMENSIONS)[0]) == DIMENSIONS
    assert len(embed(embedding_url, input="x", dimensions=None)[0]) == DIMENSIONS
    for dimensions, status in ((4, 400), (100_000, 400), (0, 422), (-1, 422)):
        refused = post(embedding_url, "/v1/embeddings", input="x", dimensions=dimensions)
        assert (refused.status_code, error(refused)["param"]) == (status, "dimensions")


def test_c102_odd_strings_keep_their_places(embedding_url: str) -> None:
    texts = [" ", "a", "\0", "😀😀", "\ud800 b".encode("utf-8", "replace").decode(), "a"]
    response = post(embedding_url, "/v1/embeddings", input=texts)
    data = response.json()["data"]
    assert [entry["index"] for entry in data] == list(range(len(texts)))
    assert data[1]["embedding"] == data[5]["embedding"]
    assert all(math.isfinite(value) for entry in data for value in entry["embedding"])


LIMITS: list[tuple[Any, str]] = [
    ("", "input"),
    ([], "input"),
    (["a", ""], "input.1"),
    ([[]], "input.0"),
    (["a"] * 257, "input"),
    (["a", [1]], ""),
    ([-1], ""),
    ("a" * 2_000_001, "input"),
    (["a" * 1_000_001] * 2, "input"),
]


@pytest.mark.parametrize(("given", "param"), LIMITS, ids=range(len(LIMITS)))
def test_inputs_out_of_bounds_are_refused(embedding_url: str, given: Any, param: str) -> None:
    response = post(embedding_url, "/v1/embeddings", input=given)
    assert response.status_code == 422
    assert not param or error(response)["param"] == param
    assert len(response.content) < 500


def test_too_long_inputs_are_refused_or_cut_when_asked(embedding_url: str) -> None:
    long = "word " * 17
    response = post(embedding_url, "/v1/embeddings", input=["short", long])
    assert response.status_code == 400
    found = error(response)
    assert (found["param"], found["code"]) == ("input.1", "context_length_exceeded")
    assert "17" in found["message"]
    assert "16" in found["message"]
    cut = post(embedding_url, "/v1/embeddings", input=long, truncate=True)
    assert cut.json()["usage"]["prompt_tokens"] == 16


def test_a_prompt_that_the_model_does_not_have(embedding_url: str) -> None:
    response = post(embedding_url, "/v1/embeddings", input="x", prompt_name="query")
    assert (response.status_code, error(response)["param"]) == (400, "prompt_name")


def test_the_debug_route_shows_the_texts(embedding_url: str, rerank_url: str) -> None:
    embed(embedding_url, input=["b c", "d"])
    seen = httpx.get(f"{embedding_url}/debug/scripted/scripted").json()["requests"][-1]
    assert (seen["input"], seen["status"], seen["prompt"]) == (["b c", "d"], "finished", None)
    post(rerank_url, "/rerank", query="q", documents=["x", "y"])
    seen = httpx.get(f"{rerank_url}/debug/scripted/scripted").json()["requests"][-1]
    assert seen["input"] == ["q", "x", "y"]


def test_c104_rerank_dialects(rerank_url: str) -> None:
    documents: list[Any] = [{"text": "the cat"}, "a dog", "the dog"]
    for path in ("/v1/rerank", "/rerank", "/v2/rerank", "/v1/reranking", "/reranking"):
        answer = post(rerank_url, path, query="the dog", documents=documents).json()
        assert [(r["index"], r["relevance_score"]) for r in answer["results"]] == [
            (2, 1.0),
            (0, 0.5),
            (1, 0.5),
        ]
        assert all("document" not in result for result in answer["results"])
        assert answer["usage"] == {"prompt_tokens": 12, "total_tokens": 12}
        assert answer["meta"]["billed_units"] == {"search_units": 1}
    shown = post(
        rerank_url, "/rerank", query="dog", documents=documents, return_documents=True, top_n=1
    ).json()["results"]
    assert shown == [{"index": 1, "relevance_score": 1.0, "document": {"text": "a dog"}}]


def test_rerank_of_texts_has_the_bare_shape(rerank_url: str) -> None:
    answer = post(rerank_url, "/rerank", query="dog", texts=["cat", "dog"], return_text=True)
    assert answer.json() == [
        {"index": 1, "score": 1.0, "text": "dog"},
        {"index": 0, "score": 0.0, "text": "cat"},
    ]


RERANK_LIMITS: list[tuple[dict[str, Any], int, str | None]] = [
    ({"query": "q", "documents": []}, 422, "documents"),
    ({"query": "", "documents": ["a"]}, 422, "query"),
    ({"query": "q"}, 422, None),
    ({"query": "q", "documents": ["a"], "texts": ["a"]}, 422, None),
    ({"query": "q", "documents": ["a"], "top_n": 0}, 422, "top_n"),
    ({"query": "q", "documents": ["a", 1]}, 422, "documents.1"),
    ({"query": "q", "documents": ["a"] * 1025}, 422, "documents"),
    ({"query": "q", "documents": ["a", "b " * 16]}, 400, "documents.1"),
]


@pytest.mark.parametrize(("fields", "status", "param"), RERANK_LIMITS, ids=range(8))
def test_rerank_refusals(
    rerank_url: str, fields: dict[str, Any], status: int, param: str | None
) -> None:
    response = post(rerank_url, "/v1/rerank", **fields)
    assert response.status_code == status, response.text
    assert param is None or error(response)["param"] == param


def test_many_documents(rerank_url: str) -> None:
    documents = [f"doc {number}" for number in range(1000)]
    answer = post(rerank_url, "/v1/rerank", query="doc 7", documents=documents).json()
    assert answer["results"][0]["index"] == 7
    assert len(answer["results"]) == 1000


def test_c105_models_of_another_kind(
    scripted_server: Callable[..., str], embedding_url: str, rerank_url: str
) -> None:
    text_url = scripted_server(TEXT)
    embeddings: dict[str, Any] = {"input": "x"}
    rerank: dict[str, Any] = {"query": "q", "documents": ["d"]}
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
    wrong = [
        (text_url, "/v1/embeddings", embeddings),
        (text_url, "/v1/rerank", rerank),
        (embedding_url, "/v1/chat/completions", chat),
        (embedding_url, "/v1/completions", {"prompt": "x"}),
        (embedding_url, "/v1/rerank", rerank),
        (rerank_url, "/v1/embeddings", embeddings),
        (rerank_url, "/v1/chat/completions", chat),
    ]
    for url, path, body in wrong:
        response = post(url, path, **body)
        assert response.status_code == 400, path
        found = error(response)
        assert (found["code"], found["param"]) == ("model_kind_mismatch", "model")
        assert "route needs" in found["message"]
    kinds = [
        httpx.get(f"{url}/v1/models").json()["data"][0]["kind"]
        for url in (text_url, embedding_url, rerank_url)
    ]
    assert kinds == ["generate", "embedding", "rerank"]


def test_a_model_of_another_kind_is_not_loaded_for_a_request(
    start_server: Callable[..., Any], tmp_path: Path
) -> None:
    script = tmp_path / "e.json"
    script.write_text('{"embedding": {"dimensions": 4}}')
    catalogue = tmp_path / "models.json"
    catalogue.write_text(
        '{"schema_version": 1, "models": [{"id": "scripted", "backend": "scripted",'
        f' "source_model": "scripted:{script}"}}]}}'
    )
    url = start_server("--catalog", str(catalogue), "--autoload").url
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    assert error(post(url, "/v1/chat/completions", **chat))["code"] == "model_kind_mismatch"
    assert httpx.get(f"{url}/v1/models/scripted").json()["status"] == "ready_to_load"
    assert len(embed(url, input="x")[0]) == 4
    assert httpx.get(f"{url}/v1/models/scripted").json()["status"] == "loaded"


def test_concurrent_requests_keep_their_vectors(start_server: Callable[..., Any]) -> None:
    server = start_server(script={"embedding": {"dimensions": 4}, "context_tokens": 10_000})

    async def ask(client: httpx.AsyncClient, number: int) -> list[float]:
        body = {"model": "scripted", "input": [f"text {number}"] * 20}
        answer = await client.post("/v1/embeddings", json=body, timeout=60)
        vectors: list[list[float]] = [one["embedding"] for one in answer.json()["data"]]
        assert all(vector == vectors[0] for vector in vectors)
        return vectors[0]

    async def all_at_once() -> list[list[float]]:
        async with httpx.AsyncClient(base_url=server.url) as client:
            return list(await asyncio.gather(*(ask(client, number) for number in range(40))))

    vectors = asyncio.run(all_at_once())
    assert len({tuple(vector) for vector in vectors}) == 40
    shown = httpx.get(f"{server.url}/debug/scripted/scripted").json()["requests"]
    assert sorted(len(one["input"]) for one in shown) == [20] * 40
