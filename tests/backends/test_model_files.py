from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pegboard_backends._openvino.model_files import (
    MANIFEST,
    Manifest,
    read_manifest,
    read_model_files,
    read_template_source,
)
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Sampling

FILES = ("openvino_model", "openvino_tokenizer", "openvino_detokenizer")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    for name in FILES:
        (made / f"{name}.xml").write_text('<data element_type="f16" shape="8, 8" />')
        (made / f"{name}.bin").write_bytes(b"x")
    return made


def write(folder: Path, name: str, content: object) -> None:
    (folder / name).write_text(json.dumps(content))


def test_c108_the_ends_of_all_files_are_united(folder: Path) -> None:
    write(folder, "config.json", {"eos_token_id": [9, 5]})
    assert read_model_files(folder).end_tokens == (9, 5)
    write(folder, "generation_config.json", {"eos_token_id": 5})
    assert read_model_files(folder).end_tokens == (5, 9)
    for odd in (None, "5", -1, [None, 2.0], {"a": 1}, True):
        write(folder, "config.json", {"eos_token_id": odd})
        assert read_model_files(folder).end_tokens == (5,)


def test_what_the_json_files_say(folder: Path) -> None:
    write(folder, "config.json", {"text_config": {"max_position_embeddings": 4096}})
    generation = {"temperature": 0.6, "top_k": 20, "top_p": 7, "eos_token_id": [2, 5], "max": 1}
    write(folder, "generation_config.json", generation)
    files = read_model_files(folder)
    assert files.context_tokens == 4096
    assert files.sampling == Sampling(temperature=0.6, top_k=20), "what is out of range is not set"
    assert files.end_tokens == (2, 5)
    assert not files.compressed


@pytest.mark.parametrize("config", [{}, {"max_position_embeddings": -1}, {"text_config": 3}])
def test_an_unknown_context_is_unknown(folder: Path, config: dict[str, Any]) -> None:
    write(folder, "config.json", config)
    assert read_model_files(folder).context_tokens is None


def test_compressed_weights_are_noticed(folder: Path) -> None:
    (folder / "openvino_model.xml").write_text('<data element_type="u4" shape="64, 2, 32" />')
    assert read_model_files(folder).compressed


@pytest.mark.parametrize(
    "name", [f"{file}{suffix}" for file in FILES for suffix in (".xml", ".bin")]
)
@pytest.mark.parametrize("empty", [True, False])
def test_an_incomplete_folder_is_refused_by_the_file(
    folder: Path, name: str, *, empty: bool
) -> None:
    (folder / name).unlink()
    if empty:
        (folder / name).touch()
    with pytest.raises(ApiError, match=name) as refused:
        read_model_files(folder)
    assert refused.value.status == 400
    assert str(folder) not in refused.value.message


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_json_that_is_no_object_is_refused(folder: Path, content: str) -> None:
    (folder / "generation_config.json").write_text(content)
    with pytest.raises(ApiError, match=r"generation_config\.json"):
        read_model_files(folder)


def test_a_manifest_is_believed_only_while_its_files_are_whole(folder: Path) -> None:
    manifest = Manifest(
        context_tokens=77,
        sampling=Sampling(),
        end_tokens=(3,),
        repaired_matrices=0,
        sizes={"openvino_model.bin": 1},
    )
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    assert read_manifest(folder) == manifest
    assert read_model_files(folder).context_tokens == 77
    (folder / "openvino_model.bin").write_bytes(b"xx")
    assert read_manifest(folder) is None


def template_of(folder: Path, embedded: str = "") -> tuple[str | None, str | None]:
    start, end = "<s>", "</s>"
    source = read_template_source(folder, embedded=embedded, bos_token=start, eos_token=end)
    assert (source.bos_token, source.eos_token) == (start, end)
    return source.template, source.tool_template


def test_where_a_template_comes_from(folder: Path) -> None:
    assert template_of(folder) == (None, None)
    assert template_of(folder, "embedded") == ("embedded", None)
    write(folder, "tokenizer_config.json", {"chat_template": "config"})
    assert template_of(folder, "embedded") == ("config", None)
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    write(folder, "tokenizer_config.json", {"chat_template": named})
    assert template_of(folder, "embedded") == ("plain", "tools")
    (folder / "chat_template.jinja").write_text("file")
    assert template_of(folder, "embedded") == ("file", "tools")
