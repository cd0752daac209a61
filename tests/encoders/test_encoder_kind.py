"""Folders that name no backend: what their files tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pegboard_backends._openvino.encoder_kind import encoder_kind
from pegboard_backends.openvino_embeddings import plugin as embeddings_plugin
from pegboard_backends.openvino_rerank import plugin as rerank_plugin
from pegboard_kernel.board import Board
from pegboard_kernel.models.specs import entry_of_spec
from pegboard_model_sources.local_path import plugin as local_path

from tests.encoders.conftest import write

NAMED = '<layer type="Parameter"><output><port names="{0}"/></output></layer>'
RESULT = '<layer type="Result" output_names="{0}"><input><port><dim>-1</dim><dim>{1}</dim></port>'


def folder_with(folder: Path, outputs: str = "", **files: Any) -> Path:
    (folder / "openvino_model.xml").write_text(outputs)
    for name, content in files.items():
        write(folder, {"config": "config.json", "pooling": "1_Pooling/config.json"}[name], content)
    return folder


def result(name: str, size: int, *inputs: str) -> str:
    return "".join(map(NAMED.format, inputs)) + RESULT.format(name, size) + "</input></layer>"


KINDS: list[tuple[dict[str, Any], str | None]] = [
    ({"pooling": {"pooling_mode_mean_tokens": True}}, "embedding"),
    (
        {
            "pooling": {"pooling_mode_lasttoken": True},
            "config": {"architectures": ["Qwen3ForCausalLM"]},
        },
        "embedding",
    ),
    ({"config": {"architectures": ["BertModel"]}}, "embedding"),
    ({"config": {"architectures": ["XLMRobertaForMaskedLM"]}}, "embedding"),
    ({"config": {"architectures": ["T5Model"], "is_encoder_decoder": True}}, None),
    ({"config": {"architectures": ["LlamaForCausalLM"]}}, None),
    ({"config": {"architectures": ["GPT2LMHeadModel"]}}, None),
    (
        {
            "config": {
                "architectures": ["BertForSequenceClassification"],
                "id2label": {"0": "LABEL_0"},
            }
        },
        "rerank",
    ),
    ({"config": {"architectures": ["BertForSequenceClassification"]}}, None),
    (
        {"config": {"architectures": ["XForSequenceClassification"], "id2label": {"0": 1, "1": 2}}},
        None,
    ),
    ({"outputs": result("last_hidden_state", 384, "input_ids")}, "embedding"),
    ({"outputs": result("logits", 1, "input_ids", "attention_mask")}, "rerank"),
    ({"outputs": result("logits", 3, "input_ids", "attention_mask")}, None),
    ({"outputs": result("logits", 1, "input_ids", "beam_idx")}, None),
    ({"config": {"architectures": 7}}, None),
    ({"config": {"architectures": ["BertModel"]}, "pooling": {"pooling_mode": "odd"}}, "embedding"),
    ({}, None),
]


@pytest.mark.parametrize(("files", "kind"), KINDS)
def test_what_a_folder_tells(tmp_path: Path, files: dict[str, Any], kind: str | None) -> None:
    assert encoder_kind(folder_with(tmp_path, **files)) == kind


def test_what_is_no_folder_of_ir_tells_nothing(tmp_path: Path) -> None:
    assert encoder_kind(tmp_path) is None
    assert encoder_kind(tmp_path / "missing") is None
    folder_with(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert encoder_kind(tmp_path) is None


@pytest.mark.parametrize("spec", ["{0}", "mine={0}"])
@pytest.mark.parametrize(
    ("architecture", "backend"),
    [
        ("BertModel", "openvino-embeddings"),
        ("BertForSequenceClassification", "openvino-rerank"),
        ("LlamaForCausalLM", "openvino-genai"),
    ],
)
def test_a_spec_gets_the_backend_of_its_folder(
    tmp_path: Path, spec: str, architecture: str, backend: str
) -> None:
    folder_with(tmp_path, config={"architectures": [architecture], "num_labels": 1})
    board = Board(
        backends={"embeddings": embeddings_plugin(), "rerank": rerank_plugin()},
        model_sources={"": local_path()},
    )
    entry = entry_of_spec(spec.format(tmp_path), board, [], default_device="CPU")
    assert (entry.backend, entry.recommended_device) == (backend, "CPU")
    assert entry.id == ("mine" if "=" in spec else tmp_path.name.strip("_"))
