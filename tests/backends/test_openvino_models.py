from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pegboard_backends._openvino import library
from pegboard_backends._openvino.conversion import converted_folder
from pegboard_backends._openvino.gguf_file import read_gguf
from pegboard_backends._openvino.gguf_weights import read_offset_weights
from pegboard_backends._openvino.model_files import MANIFEST, read_manifest
from pegboard_backends._openvino.prompt_tokenizer import FolderTokenizer
from pegboard_contracts.backend import Backend, EngineDescription, EngineOrder
from pegboard_contracts.engine import PromptTokenizer, Submission
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Sampling
from pegboard_contracts.testing.engines import GREEDY, run_until_idle

Describe = Callable[..., EngineDescription]

real_model = pytest.mark.real_model


@real_model
def test_the_weights_of_the_file_are_what_runs(
    describe_smollm2: Describe, smollm2_gguf: Path
) -> None:
    folder = converted_folder(smollm2_gguf, Path(describe_smollm2().options["cache_dir"]))
    manifest = read_manifest(folder)
    assert manifest is not None
    assert manifest.repaired_matrices == 210
    weights = read_offset_weights(
        smollm2_gguf, read_gguf(smollm2_gguf).tensors["blk.3.ffn_down.weight"]
    )
    exact = weights.numbers * weights.scales[..., None] + weights.minima[..., None]
    model = library.openvino().Core().read_model(folder / "openvino_model.xml")
    for product in model.get_ops():
        if product.get_type_name() != "Multiply":
            continue
        parts = [product.input_value(port).get_node() for port in (0, 1)]
        if str(product.get_output_partial_shape(0)) != str(list(exact.shape)).replace(" ", ""):
            continue
        numbers, zeros = (parts[0].input_value(port).get_node() for port in (0, 1))
        numbers, zeros = (node.input_value(0).get_node().data for node in (numbers, zeros))
        found = (numbers.astype(np.float32) - zeros) * parts[1].data.astype(np.float32)
        if np.abs(found - exact).max() < 0.05 * np.abs(exact).max():
            error = np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean())
            assert error < 0.01
            return
    pytest.fail("no matrix of the model holds these weights")


def order_of(
    source: Path, folder: Path, *, device: str = "CPU", options: dict[str, Any] | None = None
) -> EngineOrder:
    return EngineOrder(
        model="m", source=source, device=device, cache_dir=folder, options=options or {}
    )


def test_what_cannot_be_served_is_refused_before_anything_opens(
    openvino_cpu: Backend, smollm2_gguf: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.gguf"
    with smollm2_gguf.open("rb") as file:
        cut.write_bytes(file.read(3_000_000))
    other = tmp_path / "model.safetensors"
    other.touch()
    empty = tmp_path / "empty"
    empty.mkdir()
    orders = {
        "truncated": order_of(cut, tmp_path),
        "neither": order_of(other, tmp_path),
        "openvino_model.xml": order_of(empty, tmp_path),
        "device": order_of(smollm2_gguf, tmp_path, device="GPU"),
        "max_squences": order_of(smollm2_gguf, tmp_path, options={"max_squences": 3}),
        "at least 1": order_of(smollm2_gguf, tmp_path, options={"max_sequences": 0}),
    }
    for fault, order in orders.items():
        with pytest.raises(ApiError, match=fault) as refused:
            openvino_cpu.describe_engine(order)
        assert refused.value.status == 400
        assert str(tmp_path) not in refused.value.message


@real_model
def test_a_wrong_property_is_told_by_its_name(
    openvino_cpu: Backend, describe_smollm2: Describe
) -> None:
    description = describe_smollm2(properties={"NO_SUCH_THING": 1})
    with pytest.raises(ApiError, match="NO_SUCH_THING"):
        openvino_cpu.open_engine(description.options)
    with pytest.raises(ApiError, match="kv-cache-gb"):
        openvino_cpu.open_engine(describe_smollm2().options | {"kv_cache_gb": 10_000})


@real_model
def test_a_file_is_converted_once_and_left_overs_go(
    smollm2_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_over = tmp_path / "staging-of-a-killed-process"
    left_over.mkdir()
    (left_over / "half").touch()
    folder = converted_folder(smollm2_gguf, tmp_path)
    assert not left_over.exists()
    assert not list(tmp_path.glob("staging-*"))
    monkeypatch.setattr(library, "genai", lambda: pytest.fail("converted a second time"))
    assert converted_folder(smollm2_gguf, tmp_path) == folder


def test_devices_and_expressions(openvino_cpu: Backend) -> None:
    (device,) = openvino_cpu.devices()
    assert device.name == "CPU"
    assert device.full_name
    assert openvino_cpu.serves("openvino-genai", "cpu")
    assert not openvino_cpu.serves("openvino-genai", "AUTO:CPU")
    assert not openvino_cpu.serves("scripted", "CPU")


@real_model
def test_a_tokenizer_that_cuts_is_fed_in_parts(
    smollm2_gguf: Path, tmp_path: Path, tokenizer: PromptTokenizer
) -> None:
    linked = tmp_path / "model.gguf"
    linked.symlink_to(smollm2_gguf)
    cutting = library.genai().Tokenizer(str(linked), enable_save_ov_model=True)
    text = "word and more, " * 6_000
    assert cutting.encode(text).input_ids.shape[1] == 8192
    del cutting
    assert FolderTokenizer(tmp_path, tmp_path).encode(text) == tokenizer.encode(text)


@real_model
def test_a_folder_of_ir_is_served_and_must_tell_its_context(
    openvino_cpu: Backend, describe_smollm2: Describe, smollm2_gguf: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "smollm2-ir"
    converted = converted_folder(smollm2_gguf, Path(describe_smollm2().options["cache_dir"]))
    shutil.copytree(converted, folder, ignore=shutil.ignore_patterns(MANIFEST))
    description = openvino_cpu.describe_engine(order_of(folder, tmp_path))
    with pytest.raises(ApiError, match="max_context_len"):
        openvino_cpu.open_engine(description.options)
    (folder / "config.json").write_text('{"max_position_embeddings": 64}')
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 28], "top_k": 5}')
    opened = openvino_cpu.open_engine(description.options | {"kv_cache_gb": 1})
    try:
        assert opened.describe().context_tokens == 64
        assert opened.describe().sampling == Sampling(top_k=5)
        prompt = openvino_cpu.open_tokenizer(description.options).encode("a")
        opened.submit(
            Submission(
                request_id=1,
                prompt_ids=prompt,
                prompt_text="a",
                max_output_tokens=100,
                sampling=GREEDY,
            )
        )
        events = run_until_idle(opened)
        assert sum(len(event.token_ids) for event in events) <= 64
        assert "".join(event.text for event in events)
    finally:
        opened.close()
