"""Real encoders against the reference implementation. Slow: an environment is made for them.

`PEGBOARD_CONVERTER_PYTHON` names the python of one that is there already.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from openai import OpenAI
from pegboard_backends._openvino.encoder_texts import EncoderTokenizer, TokenizedInput
from pegboard_contracts.backend import Backend
from pegboard_contracts.encoding import Encoded, EncoderInput

from tests.encoders.conftest import order

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

_WORDS = ["the", "cat", "sat", "on", "a", "mat", "Zürich", "東京", "42", "😀", "CPU;", "why?"]


def sentences(count: int, lengths: tuple[int, ...]) -> list[str]:
    chosen = random.Random(11)  # noqa: S311 - the same texts in every run
    return [
        " ".join(chosen.choices(_WORDS, k=chosen.choice(lengths))) + f" {number}"
        for number in range(count)
    ]


def rows(results: list[Encoded]) -> Any:
    assert all(result.error is None for result in results)
    return np.array([np.frombuffer(result.values, "<f4") for result in results])


def encoded(encoder: Any, inputs: list[EncoderInput]) -> list[Encoded]:
    results: list[Encoded] = []
    for start in range(0, len(inputs), 64):
        results += encoder.encode(inputs[start : start + 64])
    return results


def test_vectors_are_those_of_the_reference(
    make_model: Callable[[str], Path], reference: Callable[..., Any], embeddings: Backend
) -> None:
    folder = make_model("embedding")
    texts = sentences(1000, (1, 4, 12, 40, 300))
    encoder = embeddings.open_encoder(embeddings.describe_engine(order(folder)).options)
    assert encoder.describe().context_tokens == 256
    ours = rows(encoded(encoder, [EncoderInput(text, truncate=True) for text in texts]))
    theirs = np.array(reference("vectors", folder, texts))
    cosines = (ours * theirs).sum(1) / np.linalg.norm(theirs, axis=1)
    assert cosines.min() > 1 - 1e-3
    encoder.close()


def test_c117_tokens_are_those_of_the_reference(
    make_model: Callable[[str], Path], reference: Callable[..., Any]
) -> None:
    folder = make_model("embedding")
    odd = [
        *("", " ", "   leading", "trailing   ", "a\n\n\n\nb", "\t\r\n", "\x00", "a\x00b", "ÀÉÎõü"),
        *(
            "👩‍👩‍👧‍👦",
            "é e\u0301",
            "東京都に行く",
            "العربية",
            "ไทย",
            "한국어",
            "[CLS] [SEP] [MASK]",
        ),
        *("a" * 10_000, "a " * 500, "don't can't", "https://x.y/z?a=1&b=2", "\ufeffbom", "\u200b"),
    ]
    texts = [*odd, *sentences(200 - len(odd), (1, 4, 12, 40))]
    tokenizer = EncoderTokenizer(folder, max_tokens=1 << 20, vocabulary=None, pairs=False)
    ours = [
        found.ids
        for found in tokenizer.tokenize([EncoderInput(text) for text in texts])
        if isinstance(found, TokenizedInput)
    ]
    theirs = reference("tokens", folder, texts)
    assert len(ours) == len(theirs)
    differing = [text[:20] for text, a, b in zip(texts, ours, theirs, strict=True) if a != b]
    assert differing == []


def test_scores_are_those_of_the_reference(
    make_model: Callable[[str], Path], reference: Callable[..., Any], rerank: Backend
) -> None:
    folder = make_model("reranker")
    queries, documents = sentences(10, (2, 5)), sentences(60, (1, 5, 30))
    pairs = [[queries[number % 10], document] for number, document in enumerate(documents)]
    described = rerank.describe_engine(order(folder / "ir", precision_hint="f32"))
    encoder = rerank.open_encoder(described.options)
    ours = rows(encoder.encode([EncoderInput(query, second=text) for query, text in pairs]))[:, 0]
    theirs = np.array(reference("scores", folder, pairs))
    # Its random weights are large, and 16 bits hold them less exactly.
    assert ours == pytest.approx(theirs, abs=1e-2)
    assert len(set(ours.round(4))) > 10
    (cut,) = encoder.encode([EncoderInput("a", second="b " * 500, truncate=True)])
    assert cut.tokens == 128
    # Of these texts the tokenizer leaves nothing.
    for text in ("", "\0", "\u200b"):
        (bare,) = encoder.encode([EncoderInput(text, second=text)])
        assert (bare.error, bare.tokens) == (None, 3)
        assert np.isfinite(rows([bare])).all()
    encoder.close()


def test_a_server_embeds_and_reranks(
    make_model: Callable[[str], Path], start_server: Callable[..., Any], tmp_path: Path
) -> None:
    entries = ("e", "openvino-embeddings", "embedding"), ("r", "openvino-rerank", "reranker")
    models = [
        {"id": name, "backend": backend, "source_model": str(_ir(make_model(what)))}
        for name, backend, what in entries
    ]
    catalogue = tmp_path / "models.json"
    catalogue.write_text(json.dumps({"schema_version": 1, "models": models}))
    url = start_server("--catalog", str(catalogue), "--model", "e", "--model", "r").url
    with OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as sdk:
        answer = sdk.embeddings.create(model="e", input=["hello world", "hello there world"])
        ids = sdk.embeddings.create(model="e", input=[101, 7592, 2088, 102])
    assert [len(entry.embedding) for entry in answer.data] == [384, 384]
    assert ids.data[0].embedding == pytest.approx(answer.data[0].embedding, abs=2e-3)
    assert answer.usage.prompt_tokens == 4 + 5
    body = {"model": "r", "query": "hello", "documents": ["a", "b c"]}
    results = httpx.post(f"{url}/v1/rerank", json=body, timeout=60).json()["results"]
    assert sorted(result["index"] for result in results) == [0, 1]
    assert all(0 <= result["relevance_score"] <= 1 for result in results)
    _check_concurrency(url)


def _check_concurrency(url: str) -> None:
    """Sixteen clients with short inputs get at least twice what one gets."""

    def ask(client: httpx.Client, number: int) -> int:
        body = {"model": "e", "input": f"a short text {number}", "encoding_format": "base64"}
        return client.post("/v1/embeddings", json=body).status_code

    with httpx.Client(base_url=url, timeout=60) as client:
        begun = time.perf_counter()
        assert {ask(client, number) for number in range(64)} == {200}
        alone = 64 / (time.perf_counter() - begun)
        with ThreadPoolExecutor(16) as pool:
            begun = time.perf_counter()
            statuses = set(pool.map(partial(ask, client), range(256)))
            together = 256 / (time.perf_counter() - begun)
    assert statuses == {200}
    assert together >= 2 * alone, f"{alone:.0f} alone, {together:.0f} together"


def test_throughput_is_that_of_the_bare_pipeline(
    make_model: Callable[[str], Path], embeddings: Backend
) -> None:
    genai: Any = __import__("openvino_genai")
    folder = make_model("embedding")
    texts = sentences(192, (4, 12, 40))
    encoder = embeddings.open_encoder(embeddings.describe_engine(order(folder)).options)
    bare = genai.TextEmbeddingPipeline(
        str(folder), "CPU", pooling_type=genai.TextEmbeddingPipeline.PoolingType.MEAN
    )
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(4):
        begun = time.perf_counter()
        encoded(encoder, [EncoderInput(text) for text in texts])
        ours.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        for start in range(0, len(texts), 64):
            bare.embed_documents(texts[start : start + 64])
        theirs.append(time.perf_counter() - begun)
    # The goal is 0.9 on a quiet machine; a test must not fail for its neighbours.
    assert min(ours[1:]) <= min(theirs[1:]) / 0.6, f"{ours} against {theirs}"
    encoder.close()


def _ir(folder: Path) -> Path:
    return folder / "ir" if (folder / "ir").is_dir() else folder
