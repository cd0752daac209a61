from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_backends._openvino.gguf_file import GgufTensor
from pegboard_backends._openvino.gguf_weights import OffsetWeights, read_offset_weights
from pegboard_backends._openvino.weight_repair import in_eight_bits

Floats = npt.NDArray[np.float32]


def values(weights: OffsetWeights) -> Floats:
    product: Floats = weights.numbers * weights.scales[..., None] + weights.minima[..., None]
    return product


SCALES = st.floats(2**-9, 1.0, width=16)


@given(SCALES, st.floats(-20, 5), st.integers(0, 2**32 - 1))
def test_eight_bits_keep_the_values(scale: float, steps: float, random: int) -> None:
    numbers = np.random.default_rng(random).integers(0, 16, (3, 2, 32)).astype(np.uint8)
    scales = np.full((3, 2), scale, np.float32)
    exact = OffsetWeights(numbers=numbers, scales=scales, minima=scales * np.float32(steps))
    new, zeros, new_scales = in_eight_bits(exact)
    got = (new.astype(np.float32) - zeros) * new_scales.astype(np.float32)
    span = max(15.0, 15 + steps, -steps) * scale
    assert np.abs(got - values(exact)).max() <= span / 255


def test_blocks_of_one_value_survive() -> None:
    constant = OffsetWeights(
        numbers=np.zeros((1, 2, 32), np.uint8),
        scales=np.zeros((1, 2), np.float32),
        minima=np.array([[0.25, 0.0]], np.float32),
    )
    new, zeros, scales = in_eight_bits(constant)
    got = (new.astype(np.float32) - zeros) * scales.astype(np.float32)
    assert got[0, 0] == pytest.approx(0.25, rel=1e-3)
    assert not got[0, 1].any()


def test_q4_k_is_read_as_it_is_defined(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    halves = np.array([0.5, 0.25], np.float16)
    scales = random.integers(0, 64, 8)
    minima = random.integers(0, 64, 8)
    packed = [int(scales[j]) | (int(scales[j + 4]) >> 4 << 6) for j in range(4)]
    packed += [int(minima[j]) | (int(minima[j + 4]) >> 4 << 6) for j in range(4)]
    packed += [(int(scales[j + 4]) & 15) | ((int(minima[j + 4]) & 15) << 4) for j in range(4)]
    numbers = random.integers(0, 16, (8, 32)).astype(np.uint8)
    pairs = numbers.reshape(4, 2, 32)
    body = (pairs[:, 0] | (pairs[:, 1] << 4)).astype(np.uint8)
    path = tmp_path / "block.bin"
    path.write_bytes(b"head" + halves.tobytes() + bytes(packed) + body.tobytes())
    tensor = GgufTensor(kind="Q4_K", shape=(1, 256), offset=4, size=144)
    weights = read_offset_weights(path, tensor)
    assert np.array_equal(weights.numbers[0], numbers)
    assert np.allclose(weights.scales[0], 0.5 * scales)
    assert np.allclose(weights.minima[0], -0.25 * minima)


def test_q4_1_is_read_as_it_is_defined(tmp_path: Path) -> None:
    numbers = np.arange(64).reshape(2, 32).astype(np.uint8) % 16
    path = tmp_path / "blocks.bin"
    halves = np.array([0.5, -1.0], np.float16).tobytes()
    rows = [halves + (row[:16] | (row[16:] << 4)).astype(np.uint8).tobytes() for row in numbers]
    path.write_bytes(b"".join(rows))
    tensor = GgufTensor(kind="Q4_1", shape=(2, 32), offset=0, size=40)
    weights = read_offset_weights(path, tensor)
    assert np.array_equal(weights.numbers[:, 0], numbers)
    assert np.allclose(values(weights)[:, 0], numbers * 0.5 - 1)
