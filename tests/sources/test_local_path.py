from __future__ import annotations

from pathlib import Path

import pytest
from pegboard_contracts.errors import ApiError
from pegboard_contracts.sources import ModelSource, model_id_from
from pegboard_contracts.testing.sources import SourceLaws
from pegboard_model_sources.local_path import LocalPath


class TestLaws(SourceLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def source(cls) -> ModelSource:
        return LocalPath()

    @pytest.fixture
    def good_address(self, tmp_path: Path) -> str:
        path = tmp_path / "a model.gguf"
        path.touch()
        return str(path)

    @pytest.fixture
    def missing_address(self, tmp_path: Path) -> str:
        return str(tmp_path / "nothing.gguf")


def test_a_relative_path_counts_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ir").mkdir()
    monkeypatch.chdir(tmp_path)
    assert LocalPath().resolve("ir") == tmp_path / "ir"
    assert LocalPath().default_id(".") == model_id_from(tmp_path.name)
    with pytest.raises(ApiError) as refused:
        LocalPath().resolve("other")
    assert "'other'" in refused.value.message
    assert str(tmp_path) not in refused.value.message


def test_a_link_is_followed_once(tmp_path: Path) -> None:
    (tmp_path / "real.gguf").touch()
    (tmp_path / "link.gguf").symlink_to(tmp_path / "real.gguf")
    assert LocalPath().resolve(str(tmp_path / "link.gguf")) == tmp_path / "real.gguf"
    assert LocalPath().default_id(str(tmp_path / "link.gguf")) == "link"
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(ApiError) as refused:
        LocalPath().resolve(str(loop))
    assert refused.value.status in {400, 404}


@pytest.mark.parametrize(
    ("address", "model_id"),
    [
        ("/models/Qwen2.5-0.5B", "Qwen2.5-0.5B"),
        ("/models/SmolLM2.Q4_1.gguf", "SmolLM2.Q4_1"),
        ("demo.json", "demo"),
        ("/models/my model.gguf", "my-model"),
        ("con.gguf", "model-con"),
        ("auto.gguf", "model-auto"),
        ("/models/tiny/sub/..", "tiny"),
        ("/", "model"),
    ],
)
def test_ids_come_from_names(address: str, model_id: str) -> None:
    assert LocalPath().default_id(address) == model_id
