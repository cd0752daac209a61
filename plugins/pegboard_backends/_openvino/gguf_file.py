"""GGUF files: metadata and tensor directory, read in pure Python.

A truncated file kills the process in the native reader, so every file is read here
first, and one whose tensors are not all there is refused.
"""

from __future__ import annotations

import mmap
import struct
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import msgspec
from pegboard_contracts.errors import ApiError, invalid_request

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_MOST_ENTRIES = 1 << 20
_LONGEST_KEPT_ARRAY = 256
_MOST_DIMENSIONS = 4

_KINDS = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
"""Kind number: its name, the elements of a block, and the bytes of a block."""


class GgufTensor(msgspec.Struct, frozen=True, kw_only=True):
    """Locate one tensor; `shape` counts from the outermost, `offset` from the file's start."""

    kind: str
    shape: tuple[int, ...]
    offset: int
    size: int


class GgufFile(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a whole and consistent GGUF file; long arrays of the metadata are left out."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @property
    def architecture(self) -> str:
        """Return the model family, such as `llama`."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def context_tokens(self) -> int | None:
        """Return the context length the model was made for, when the file tells."""
        value = self.metadata.get(f"{self.architecture}.context_length")
        return value if isinstance(value, int) and value > 0 else None


def read_gguf(path: Path) -> GgufFile:
    """Read and check a GGUF file.

    Raises `ApiError` 400 when it is no GGUF file, is truncated or contradicts itself.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Header(path, data).read()
    except (OSError, ValueError) as error:  # mmap: an empty file is a ValueError
        raise _refusal(path, "cannot be read") from error


def _refusal(path: Path, fault: str) -> ApiError:
    message = f"The model file '{path.name}' {fault}; download it again."
    return invalid_request(message, code="invalid_model_file")


class _Header:
    """Walk through the header once, never past the end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._end = len(data)
        self._position = 0

    def read(self) -> GgufFile:
        if self._end < len(_MAGIC) or self._data[: len(_MAGIC)] != _MAGIC:
            raise _refusal(self._path, "is no GGUF file")
        self._position = len(_MAGIC)
        version = self._scalar("I")
        if version not in (2, 3):
            raise _refusal(self._path, "has a GGUF version that is not 2 or 3")
        tensor_count, entry_count = self._count(), self._count()
        metadata = {self._text(): self._value(self._scalar("I")) for _ in range(entry_count)}
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= _MOST_ENTRIES:
            raise _refusal(self._path, "has an impossible alignment")
        directory = [self._tensor() for _ in range(tensor_count)]
        start = -(-self._position // alignment) * alignment
        tensors = {
            name: msgspec.structs.replace(tensor, offset=start + tensor.offset)
            for name, tensor in directory
        }
        self._check(tensors, tensor_count, alignment)
        return GgufFile(path=self._path, metadata=metadata, tensors=tensors)

    def _check(self, tensors: dict[str, GgufTensor], count: int, alignment: int) -> None:
        if not tensors or len(tensors) != count:
            raise _refusal(self._path, "names no tensors, or one of them twice")
        if any(tensor.offset % alignment for tensor in tensors.values()):
            raise _refusal(self._path, "has a misplaced tensor")
        needed = max(tensor.offset + tensor.size for tensor in tensors.values())
        if needed > self._end:
            raise _refusal(self._path, f"is truncated: it has {self._end} of {needed} bytes")
        spans = sorted((tensor.offset, tensor.size) for tensor in tensors.values())
        for (offset, size), (following, _) in pairwise(spans):
            if offset + size > following:
                raise _refusal(self._path, "has tensors that overlap")

    def _scalar(self, kind: str) -> Any:  # noqa: ANN401 - an int, a float or a bool
        try:
            (value,) = struct.unpack_from("<" + kind, self._data, self._position)
        except struct.error:
            raise _refusal(self._path, "is truncated") from None
        self._position += struct.calcsize(kind)
        return value

    def _count(self) -> int:
        count = int(self._scalar("Q"))
        if count > _MOST_ENTRIES:
            raise _refusal(self._path, "has an impossible header")
        return count

    def _skip(self, size: int) -> int:
        start = self._position
        if size > self._end - start:
            raise _refusal(self._path, "is truncated")
        self._position = start + size
        return start

    def _text(self) -> str:
        start = self._skip(int(self._scalar("Q")))
        return self._data[start : self._position].decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:  # noqa: ANN401 - whatever the metadata holds
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise _refusal(self._path, "has metadata of an unknown kind")
        return self._scalar(_SCALARS[kind])

    def _array(self) -> list[Any] | None:
        kind, length = int(self._scalar("I")), int(self._scalar("Q"))
        if kind == _ARRAY:
            raise _refusal(self._path, "has nested metadata")
        if length <= _LONGEST_KEPT_ARRAY:
            return [self._value(kind) for _ in range(length)]
        if kind in _SCALARS:
            self._skip(struct.calcsize(_SCALARS[kind]) * length)
        elif kind == _STRING:
            self._skip_texts(length)
        else:
            raise _refusal(self._path, "has metadata of an unknown kind")
        return None

    def _skip_texts(self, length: int) -> None:
        # A vocabulary has hundreds of thousands of texts: nothing is called per text but unpack.
        unpack, data, position = struct.Struct("<Q").unpack_from, self._data, self._position
        try:
            for _ in range(length):
                position += 8 + unpack(data, position)[0]
        except (struct.error, OverflowError):
            raise _refusal(self._path, "is truncated") from None
        self._skip(position - self._position)

    def _tensor(self) -> tuple[str, GgufTensor]:
        name, dimension_count = self._text(), int(self._scalar("I"))
        if dimension_count > _MOST_DIMENSIONS:
            raise _refusal(self._path, "has a tensor with too many dimensions")
        shape = tuple(int(self._scalar("Q")) for _ in range(dimension_count))[::-1]
        number, offset = int(self._scalar("I")), int(self._scalar("Q"))
        if number not in _KINDS:
            raise _refusal(self._path, f"has a tensor of the unknown kind {number}")
        kind, block, block_size = _KINDS[number]
        row = shape[-1] if shape else 1
        if row % block:
            raise _refusal(self._path, "has a tensor that does not fill its blocks")
        size = prod(shape) // block * block_size
        return name, GgufTensor(kind=kind, shape=shape, offset=offset, size=size)
