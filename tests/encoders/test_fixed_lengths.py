"""Encoders that are compiled for one input of one length, as an NPU needs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from pegboard_backends._openvino import library
from pegboard_contracts.backend import Backend, EngineOrder
from pegboard_contracts.encoding import EncoderInput
from pegboard_contracts.errors import ApiError

from tests.devices.conftest import CPU, NPU, FakeCore
from tests.encoders.conftest import MAX_TOKENS, OpenEncoder, order, write
from tests.encoders.test_openvino_embeddings import vectors

pytestmark = pytest.mark.real_model


@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken", "max"])
def test_a_fixed_length_changes_no_vector(open_small: OpenEncoder, pooling: str) -> None:
    inputs = [EncoderInput("a"), EncoderInput("b c d"), EncoderInput(token_ids=[5] * 16)]
    plain = open_small(pooling=pooling, precision_hint="f32")
    fixed = open_small(pooling=pooling, precision_hint="f32", fixed_tokens=16)
    assert fixed.describe().context_tokens == 16
    assert vectors(fixed.encode(inputs)) == pytest.approx(vectors(plain.encode(inputs)), abs=1e-5)
    assert fixed.inspect()["inferences"] == 3
    (long,) = fixed.encode([EncoderInput(token_ids=[5] * 17)])
    assert long.error is not None
    assert "17 tokens and the model takes 16" in long.error["message"]


def test_no_length_at_all_is_refused(small_folder: Path, embeddings: Backend) -> None:
    with pytest.raises(ApiError, match="one token at least"):
        embeddings.describe_engine(order(small_folder, fixed_tokens=0))


def order_on(folder: Path, device: str, options: dict[str, Any]) -> EngineOrder:
    return msgspec.structs.replace(order(folder, **options), device=device)


class FakeModel:
    """Remember how it was shaped and compiled, and answer with ones."""

    inputs: Any = ("input_ids",)
    shapes: Any = None
    compiled_for: str | None = None
    fed: Any = None

    def reshape(self, shapes: dict[str, list[int]]) -> None:
        self.shapes = shapes


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Callable[[], FakeModel]:
    model = FakeModel()
    port = SimpleNamespace(
        get_names=lambda: {"input_ids", "last_hidden_state"},
        partial_shape=[SimpleNamespace(is_static=True, get_length=lambda: 4)],
    )

    def infer(fed: dict[str, Any]) -> None:
        model.fed = fed

    def get_tensor(_: object) -> Any:
        return SimpleNamespace(data=np.ones((1, MAX_TOKENS, 4), np.float32))

    def read_model(*_: object) -> FakeModel:
        return model

    request = SimpleNamespace(infer=infer, get_tensor=get_tensor)
    told = {
        "EXECUTION_DEVICES": ["NPU"],
        "INFERENCE_PRECISION_HINT": SimpleNamespace(get_type_name=lambda: "f16"),
    }

    def compile_model(_: object, device: str, __: object) -> Any:
        model.compiled_for = device
        return SimpleNamespace(
            inputs=[port],
            outputs=[port],
            create_infer_request=lambda: request,
            get_property=told.__getitem__,
        )

    core: Any = type("Core", (FakeCore,), {"machine": {"CPU": CPU, "NPU": NPU}})
    core.read_model = read_model
    core.compile_model = staticmethod(compile_model)
    monkeypatch.setattr(library, "openvino", lambda: SimpleNamespace(Core=core))
    return lambda: model


@pytest.mark.simulated
def test_on_the_npu_every_input_has_one_length(
    npu: Callable[[], FakeModel], small_folder: Path, embeddings: Backend
) -> None:
    described = embeddings.describe_engine(order_on(small_folder, "NPU", {"precision_hint": "f32"}))
    assert described.options["fixed_tokens"] == MAX_TOKENS
    encoder = embeddings.open_encoder(described.options)
    model = npu()
    assert (model.compiled_for, model.shapes) == ("NPU", {"input_ids": [1, MAX_TOKENS]})
    results = encoder.encode([EncoderInput(token_ids=[5, 6]), EncoderInput(token_ids=[7])])
    assert [result.tokens for result in results] == [2, 1]
    fed: Any = model.fed
    assert fed["input_ids"].shape == (1, MAX_TOKENS)
    assert encoder.describe().device == "NPU"


@pytest.mark.simulated
@pytest.mark.usefixtures("npu")
def test_lengths_and_weights_on_the_npu(small_folder: Path, embeddings: Backend) -> None:
    def described(device: str, **options: Any) -> Any:
        return embeddings.describe_engine(order_on(small_folder, device, options)).options

    assert described("AUTO:NPU,CPU")["fixed_tokens"] == MAX_TOKENS
    assert described("NPU", fixed_tokens=8)["fixed_tokens"] == 8
    assert described("CPU")["fixed_tokens"] is None
    write(small_folder, "sentence_bert_config.json", {"max_seq_length": 8192})
    write(small_folder, "config.json", {"max_position_embeddings": 8192, "vocab_size": 49152})
    assert described("NPU")["fixed_tokens"] == 512
    xml = small_folder / "openvino_model.xml"
    xml.write_text(xml.read_text() + '<data element_type="u8" shape="64, 64" />')
    with pytest.raises(ApiError) as caught:
        described("NPU")
    assert caught.value.code == "npu_weights_refused"
    with pytest.raises(ApiError, match="Examples"):
        described("NPU:CPU")
