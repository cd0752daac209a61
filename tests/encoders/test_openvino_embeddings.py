"""The OpenVINO embedding backend on a small model made here: pooling, lengths, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pegboard_contracts.backend import Backend
from pegboard_contracts.encoding import Encoded, EncoderInput
from pegboard_contracts.errors import ApiError

from tests.encoders.conftest import MAX_TOKENS, WIDTH, OpenEncoder, order, write

pytestmark = pytest.mark.real_model


def vectors(results: list[Encoded]) -> Any:
    assert all(result.error is None for result in results)
    return np.array([np.frombuffer(result.values, "<f4") for result in results])


def row(open_small: OpenEncoder, token: int) -> Any:
    """Return a token's row of the table: the pooled vector of that token alone."""
    encoder = open_small(normalize=False)
    return vectors(encoder.encode([EncoderInput(token_ids=[token])]))[0]


def test_what_the_files_say_is_described(open_small: OpenEncoder) -> None:
    info = open_small().describe()
    assert (info.context_tokens, info.device) == (MAX_TOKENS, "CPU")
    assert info.encoder is not None
    assert (info.encoder.kind, info.encoder.dimensions) == ("embedding", WIDTH)
    assert info.encoder.smaller_dimensions == ()


@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken", "max"])
def test_pooling_leaves_padding_out(open_small: OpenEncoder, pooling: str) -> None:
    encoder = open_small(pooling=pooling, normalize=False, precision_hint="f32")
    rows = {token: row(open_small, token) for token in (5, 9, 11)}
    expected = {
        "mean": (rows[5] + rows[9] + rows[11]) / 3,
        "cls": rows[5],
        "lasttoken": rows[11],
        "max": np.maximum(np.maximum(rows[5], rows[9]), rows[11]),
    }[pooling]
    longer = EncoderInput(token_ids=[7] * 20)
    together = vectors(encoder.encode([longer, EncoderInput(token_ids=[5, 9, 11]), longer]))
    assert together[1] == pytest.approx(expected, abs=1e-2)


def test_results_do_not_depend_on_the_batch(open_small: OpenEncoder) -> None:
    encoder = open_small()
    inputs = [EncoderInput("word " * (1 + number % 13)) for number in range(50)]
    together = vectors(encoder.encode(inputs))
    alone = np.concatenate([vectors(encoder.encode([one])) for one in inputs])
    assert together == pytest.approx(alone, abs=1e-5)
    assert np.linalg.norm(together, axis=1) == pytest.approx(1, abs=1e-5)
    assert encoder.inspect()["batches"] == 51


def test_counts_are_those_of_the_tokenizer(open_small: OpenEncoder) -> None:
    encoder = open_small()
    (text, ids) = encoder.encode([EncoderInput("a b c"), EncoderInput(token_ids=[1, 2])])
    assert (text.tokens, ids.tokens) == (3, 2)


def test_odd_texts_give_finite_vectors(open_small: OpenEncoder) -> None:
    texts = ["a", "\0", "😀😀", "\ud800", "é" * 10]
    found = vectors(open_small().encode([EncoderInput(text) for text in texts]))
    assert np.isfinite(found).all()


def test_too_long_is_refused_or_cut_and_disturbs_nobody(open_small: OpenEncoder) -> None:
    encoder = open_small()
    long, ids = " word" * 40, [5] * 40
    results = encoder.encode(
        [
            EncoderInput("fine"),
            EncoderInput(long),
            EncoderInput(long, truncate=True),
            EncoderInput(token_ids=ids),
            EncoderInput(token_ids=ids, truncate=True),
        ]
    )
    assert [result.tokens for result in results] == [1, 0, MAX_TOKENS, 0, MAX_TOKENS]
    for index in (1, 3):
        error = results[index].error
        assert error is not None
        assert (error["status"], error["code"]) == (400, "context_length_exceeded")
        assert "40 tokens" in error["message"]
        assert str(MAX_TOKENS) in error["message"]


@pytest.mark.parametrize("token", [-1, 49152, 99_999_999])
def test_ids_of_another_vocabulary_are_refused(open_small: OpenEncoder, token: int) -> None:
    (result,) = open_small().encode([EncoderInput(token_ids=[1, token])])
    assert result.error is not None
    assert result.error["code"] == "invalid_token_id"
    assert "LangChain" in result.error["message"]


def test_ids_are_refused_where_no_file_tells_the_vocabulary(
    open_small: OpenEncoder, small_folder: Path
) -> None:
    write(small_folder, "config.json", {"max_position_embeddings": 64})
    text, ids = open_small().encode([EncoderInput("fine"), EncoderInput(token_ids=[1])])
    assert text.error is None
    assert ids.error is not None
    assert (ids.error["status"], ids.error["code"]) == (400, "token_ids_not_supported")


def test_the_context_can_be_made_shorter_only(open_small: OpenEncoder) -> None:
    assert open_small(context_tokens=8).describe().context_tokens == 8
    assert open_small(context_tokens=800).describe().context_tokens == MAX_TOKENS


def test_prompts_and_smaller_dimensions_come_from_the_files(
    open_small: OpenEncoder, small_folder: Path
) -> None:
    prompts = {"query": "q: ", "document": ""}
    told = {"prompts": prompts, "default_prompt_name": "query"}
    write(small_folder, "config_sentence_transformers.json", told)
    config = json.loads((small_folder / "config.json").read_text())
    write(small_folder, "config.json", {**config, "matryoshka_dimensions": [4, 8]})
    info = open_small().describe().encoder
    assert info is not None
    assert (info.prompts, info.default_prompt) == (prompts, "query")
    assert info.smaller_dimensions == (4, 8)
    write(small_folder, "config.json", {**config, "is_matryoshka": True})
    info = open_small().describe().encoder
    assert info is not None
    assert info.smaller_dimensions is None


def test_a_folder_without_pooling_is_refused_unless_told(
    embeddings: Backend, small_folder: Path
) -> None:
    (small_folder / "1_Pooling" / "config.json").unlink()
    with pytest.raises(ApiError) as caught:
        embeddings.describe_engine(order(small_folder))
    assert caught.value.code == "pooling_unknown"
    assert embeddings.describe_engine(order(small_folder, pooling="cls")).kind == "embedding"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("modules.json", [{"type": "sentence_transformers.models.Dense", "path": "2"}], "Dense"),
        ("modules.json", {"a": 1}, "modules.json"),
        ("modules.json", [{"type": "x.Pooling", "path": "../../etc"}], "out of its folder"),
        ("1_Pooling/config.json", {"pooling_mode": "weightedmean"}, "pooling"),
    ],
)
def test_files_that_are_not_understood_are_named(
    embeddings: Backend, small_folder: Path, name: str, content: object, said: str
) -> None:
    write(small_folder, name, content)
    with pytest.raises(ApiError, match=said):
        embeddings.describe_engine(order(small_folder))


def test_missing_files_and_unknown_options(embeddings: Backend, small_folder: Path) -> None:
    with pytest.raises(ApiError, match="options are wrong"):
        embeddings.describe_engine(order(small_folder, colour="red"))
    (small_folder / "openvino_tokenizer.bin").unlink()
    with pytest.raises(ApiError, match=r"openvino_tokenizer\.bin"):
        embeddings.describe_engine(order(small_folder))


def test_a_tokenizer_without_pairs_cannot_rerank(rerank: Backend, small_folder: Path) -> None:
    described = rerank.describe_engine(order(small_folder))
    assert described.kind == "rerank"
    with pytest.raises(ApiError, match="pairs"):
        rerank.open_encoder(described.options)
