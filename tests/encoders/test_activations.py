"""What a rerank model's numbers go through: told by its files, or by its catalogue entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pegboard_backends._openvino.encoder import scores_of
from pegboard_backends._openvino.encoder_files import Activation, read_activation
from pegboard_contracts.backend import Backend
from pegboard_contracts.errors import ApiError

from tests.encoders.conftest import order, write

_TORCH = "torch.nn.modules"
TOLD: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"sentence_transformers": {"activation_fn": f"{_TORCH}.linear.Identity"}}, "identity"),
    ({"sentence_transformers": {"activation_fn": f"{_TORCH}.activation.Sigmoid"}}, "sigmoid"),
    ({"sbert_ce_default_activation_function": f"{_TORCH}.activation.Softmax"}, "softmax"),
    ({"sentence_transformers": {"version": "5.1.0"}}, None),
    ({"sentence_transformers": "odd"}, None),
]


@pytest.mark.parametrize(("config", "activation"), TOLD)
def test_what_the_files_tell(tmp_path: Path, config: Any, activation: str | None) -> None:
    write(tmp_path, "config.json", config)
    assert read_activation(tmp_path) == activation


@pytest.mark.parametrize(
    ("activation", "logits", "scores"),
    [
        ("sigmoid", [[0.0], [100.0], [-1.0]], [0.5, 1.0, 0.26894143]),
        ("identity", [[0.0], [11.5], [-11.5]], [0.0, 11.5, -11.5]),
        ("softmax", [[1.0, 1.0], [0.0, 1.0]], [0.5, 0.7310586]),
        ("sigmoid", [[9.0, 0.0]], [0.5]),
        ("identity", [[9.0, -2.0]], [-2.0]),
    ],
)
def test_scores(activation: Activation, logits: Any, scores: list[float]) -> None:
    found = scores_of(np.array(logits, np.float32), activation)
    assert found[:, 0] == pytest.approx(scores, abs=1e-6)


@pytest.mark.real_model
def test_c104_the_activation_of_the_files_unless_the_entry_has_one(
    small_folder: Path, rerank: Backend
) -> None:
    odd = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.GELU"}}
    write(small_folder, "config.json", {"max_position_embeddings": 64, **odd})
    with pytest.raises(ApiError, match="GELU") as caught:
        rerank.describe_engine(order(small_folder))
    assert (caught.value.status, caught.value.param) == (400, "activation")
    told = rerank.describe_engine(order(small_folder, activation="identity")).options
    assert told["activation"] == "identity"
    write(small_folder, "config.json", {"max_position_embeddings": 64})
    assert rerank.describe_engine(order(small_folder)).options["activation"] is None
