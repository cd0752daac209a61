"""What backends say of files that nobody opens: whole or not, how long, how large."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_backends._openvino.model_files import context_tokens_of
from pegboard_backends.openvino_cpu import plugin as cpu_plugin
from pegboard_backends.openvino_embeddings import plugin as embeddings_plugin
from pegboard_backends.openvino_gpu import plugin as gpu_plugin
from pegboard_backends.openvino_npu import plugin as npu_plugin
from pegboard_backends.openvino_rerank import plugin as rerank_plugin
from pegboard_backends.scripted import plugin as scripted_plugin
from pegboard_contracts.backend import Backend, EngineOrder, ModelFacts

PAIRS = ("openvino_model", "openvino_tokenizer", "openvino_detokenizer")
LLAMA = {
    "max_position_embeddings": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
}


def made(plugin: type[Backend]) -> Backend:
    backend = plugin()
    backend.name = "b"
    backend.configure(plugin.Settings())
    return backend


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder that looks whole from outside."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in PAIRS:
        (folder / f"{name}.xml").write_text('<?xml version="1.0"?><net name="m"></net>\n')
        (folder / f"{name}.bin").write_bytes(bytes(100))
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return folder


def test_a_whole_folder_is_served_and_its_facts_read(folder: Path) -> None:
    cpu = made(cpu_plugin)
    assert cpu.can_serve(folder)
    facts = cpu.facts(folder)
    assert facts.architecture_limit_tokens == facts.default_context_tokens == 2048
    assert (facts.layers, facts.kv_heads, facts.head_dim) == (4, 2, 64)
    assert facts.kv_number_bytes == 1.1875
    assert facts.weights_bytes == 300
    assert facts.overhead_bytes > 0
    assert facts.cache_bytes is not None
    assert facts.cache_bytes >= 1 << 30


def test_devices_differ_in_cache_and_default_context(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(LLAMA | {"max_position_embeddings": 32768}))
    assert made(gpu_plugin).facts(folder).kv_number_bytes == 2
    npu = made(npu_plugin).facts(folder)
    assert (npu.architecture_limit_tokens, npu.default_context_tokens) == (32768, 4096)
    assert npu.cache_bytes is None


def spoil_nothing_there(folder: Path) -> None:
    shutil.rmtree(folder)


def spoil_end(folder: Path) -> None:
    (folder / "openvino_model.xml").write_text('<?xml version="1.0"?><net name="m"><layers>')


def spoil_head(folder: Path) -> None:
    (folder / "openvino_model.xml").write_text("<html></net>")


def spoil_weights(folder: Path) -> None:
    (folder / "openvino_model.bin").write_bytes(b"")


def spoil_tokenizer(folder: Path) -> None:
    (folder / "openvino_tokenizer.xml").unlink()


def spoil_config(folder: Path) -> None:
    (folder / "config.json").write_text("[1]")


def spoil_large_config(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"x": "x" * (4 << 20)}))


def spoil_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_nothing_there,
        spoil_end,
        spoil_head,
        spoil_weights,
        spoil_tokenizer,
        spoil_config,
        spoil_large_config,
        spoil_no_config,
    ],
)
def test_a_folder_that_lacks_something_is_served_by_nobody(folder: Path, spoil: Any) -> None:
    spoil(folder)
    for plugin in (cpu_plugin, npu_plugin, embeddings_plugin, rerank_plugin):
        assert not made(plugin).can_serve(folder)
        assert isinstance(made(plugin).facts(folder), ModelFacts)


def test_only_models_that_generate_need_a_detokenizer(folder: Path) -> None:
    (folder / "openvino_detokenizer.xml").unlink()
    assert not made(cpu_plugin).can_serve(folder)
    assert made(embeddings_plugin).can_serve(folder)
    facts = made(rerank_plugin).facts(folder)
    assert (facts.architecture_limit_tokens, facts.layers) == (2048, None)


def gguf(path: Path, *, tail: int = 0) -> Path:
    """Write a GGUF file of one matrix and the metadata of a small llama."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    numbers = {
        "context_length": 512,
        "block_count": 3,
        "embedding_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
    }
    data = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    for key, value in numbers.items():
        data += text(f"llama.{key}") + struct.pack("<II", 4, value)
    tensor = text("token_embd.weight") + struct.pack("<IQQIQ", 2, 32, 64, 2, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1 + len(numbers)) + data + tensor
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(64 * 18 + tail))
    return path


def test_gguf_files_tell_their_facts_without_a_conversion(tmp_path: Path) -> None:
    source = gguf(tmp_path / "m.gguf")
    cpu = made(cpu_plugin)
    assert cpu.can_serve(source)
    facts = cpu.facts(source)
    assert (facts.architecture_limit_tokens, facts.default_context_tokens) == (512, 512)
    assert (facts.layers, facts.kv_heads, facts.head_dim) == (3, 2, 32)
    assert facts.kv_number_bytes == 1.25
    assert facts.weights_bytes == int(64 * 32 * (0.5 + 2.5 / 32))
    assert not cpu.can_serve(gguf(tmp_path / "cut.gguf", tail=-1))


def test_a_folder_with_exactly_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "pegboard-conversion.json").write_text("{}")
    source = gguf(folder / "m.gguf")
    cpu = made(cpu_plugin)
    assert cpu.can_serve(folder)
    assert cpu.facts(folder).layers == 3
    order = EngineOrder(model="m", source=folder, device="CPU", cache_dir=tmp_path)
    assert cpu.describe_engine(order).options["source"] == str(source)
    gguf(folder / "second.gguf")
    assert not cpu.can_serve(folder)


@pytest.mark.real_model
def test_the_estimate_of_a_gguf_file_is_what_its_conversion_takes(
    openvino_cpu: Backend, smollm2_gguf: Path
) -> None:
    facts = openvino_cpu.facts(smollm2_gguf)
    assert facts.weights_bytes == pytest.approx(147_228_380, rel=0.01)
    assert (facts.layers, facts.kv_heads, facts.head_dim) == (30, 3, 64)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"n_positions": 1024}, 1024),
        ({"max_seq_len": 77}, 77),
        ({"seq_length": 99}, 99),
        ({"text_config": {"max_position_embeddings": 5}}, 5),
        ({"max_position_embeddings": True}, None),
        ({"max_position_embeddings": -1}, None),
        ({"max_position_embeddings": "10"}, None),
        ({"max_position_embeddings": 100, "rope_scaling": {"factor": 4.0}}, 100),
        (
            {
                "max_position_embeddings": 100,
                "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 100},
            },
            400,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_parameters": {"factor": 8.0, "original_max_position_embeddings": 8192},
            },
            131072,
        ),
    ],
)
def test_the_limit_of_an_architecture(config: dict[str, Any], expected: int | None) -> None:
    assert context_tokens_of(config) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = st.sampled_from([*LLAMA, "rope_scaling", "rope_parameters", "text_config", "factor"])


@given(st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=3)))
def test_no_config_breaks_the_limit(config: dict[str, Any]) -> None:
    limit = context_tokens_of(config)
    assert limit is None or limit > 0


def test_scripts_tell_their_context(tmp_path: Path) -> None:
    scripted, script = made(scripted_plugin), tmp_path / "s.json"
    assert not scripted.can_serve(script)
    assert scripted.facts(script) == ModelFacts()
    script.write_text("{")
    assert not scripted.can_serve(script)
    script.write_text(json.dumps({"context_tokens": 100}))
    assert scripted.can_serve(script)
    facts = ModelFacts(architecture_limit_tokens=100, default_context_tokens=100)
    assert scripted.facts(script) == facts
