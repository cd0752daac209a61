"""The exact numbers behind the 4-bit tensors of a GGUF file that have an offset per block.

A weight of Q4_1 and Q4_K is `scale * number + minimum`, number in 0..15, one scale and one
minimum for 32 weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pegboard_backends._openvino.gguf_file import GgufTensor

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

GROUP = 32
OFFSET_KINDS = frozenset({"Q4_1", "Q4_K"})


class OffsetWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a matrix: `numbers` [rows, groups, 32], `scales` and `minima` [rows, groups]."""

    numbers: Bytes
    scales: Floats
    minima: Floats

    def take(self, rows: npt.NDArray[np.int64]) -> OffsetWeights:
        """Return the same matrix with its rows in another order."""
        return OffsetWeights(
            numbers=self.numbers[rows], scales=self.scales[rows], minima=self.minima[rows]
        )


def read_offset_weights(path: Path, tensor: GgufTensor) -> OffsetWeights:
    """Read a tensor whose kind is one of `OFFSET_KINDS`."""
    raw = np.fromfile(path, dtype=np.uint8, count=tensor.size, offset=tensor.offset)
    rows, columns = tensor.shape
    numbers, scales, minima = _q4_1(raw) if tensor.kind == "Q4_1" else _q4_k(raw)
    groups = columns // GROUP
    return OffsetWeights(
        numbers=numbers.reshape(rows, groups, GROUP),
        scales=scales.reshape(rows, groups),
        minima=minima.reshape(rows, groups),
    )


def _halves(columns: Bytes) -> Floats:
    return np.ascontiguousarray(columns).view(np.float16).astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    halves: Any = [packed & 15, packed >> 4]
    return np.concatenate(halves, axis=-1)


def _q4_1(raw: Bytes) -> tuple[Bytes, Floats, Floats]:
    blocks = raw.reshape(-1, 20)
    return _nibbles(blocks[:, 4:]), _halves(blocks[:, :2]), _halves(blocks[:, 2:4])


def _q4_k(raw: Bytes) -> tuple[Bytes, Floats, Floats]:
    # Eight groups a block. Scales and minima of 6 bits: the first four of each lie in bytes
    # 0-3 and 4-7, the low halves of the last four in bytes 8-11, their high bits above the first.
    blocks = raw.reshape(-1, 144)
    packed = blocks[:, 4:16]
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], axis=1)
    minima = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=1)
    numbers = _nibbles(blocks[:, 16:].reshape(-1, 4, 32))
    scale, minimum = _halves(blocks[:, :2]), _halves(blocks[:, 2:4])
    return numbers, scale * scales.astype(np.float32), -minimum * minima.astype(np.float32)
