"""Vectors as bytes: little-endian 32-bit floats, read only where somebody needs numbers."""

from __future__ import annotations

import math
import struct

from pegboard_contracts.errors import ApiError


def numbers_of(values: bytes) -> tuple[float, ...]:
    """Read the floats."""
    return struct.unpack(f"<{len(values) // 4}f", values)


def check_finite(values: bytes) -> bytes:
    """Return `values`; raise 500 `not_finite` when one of them is no finite number."""
    if not math.isfinite(sum(map(abs, numbers_of(values)))):
        message = "The model gave a number that is not finite for this input; see its precision."
        raise ApiError(500, message, code="not_finite")
    return values


def first_value(values: bytes) -> float:
    """Read the first float."""
    return numbers_of(values)[0]


def shortened(values: bytes, dimensions: int) -> bytes:
    """Cut a vector to its first `dimensions` and bring it to unit length again."""
    kept = numbers_of(values)[:dimensions]
    length = math.sqrt(math.fsum(value * value for value in kept)) or 1.0
    return struct.pack(f"<{len(kept)}f", *(value / length for value in kept))
