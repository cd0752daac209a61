from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_backends._openvino.gguf_file import read_gguf
from pegboard_contracts.errors import ApiError


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key: str, kind: int, data: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + data


def tensor(name: str, dimensions: tuple[int, ...], kind: int, offset: int) -> bytes:
    sizes = struct.pack(f"<{len(dimensions)}Q", *dimensions)
    return (
        text(name) + struct.pack("<I", len(dimensions)) + sizes + struct.pack("<IQ", kind, offset)
    )


def small_file(*, offsets: tuple[int, int] = (0, 96), version: int = 3) -> bytes:
    """One F32 tensor of 64 bytes and one Q4_1 tensor of 40 bytes, some metadata."""
    words = b"".join(text(f"token{number}") for number in range(300))
    entries = [
        entry("general.architecture", 8, text("llama")),
        entry("llama.context_length", 4, struct.pack("<I", 2048)),
        entry("short", 9, struct.pack("<IQ2f", 6, 2, 1.0, 2.0)),
        entry("tokens", 9, struct.pack("<IQ", 8, 300) + words),
        entry("types", 9, struct.pack("<IQ", 5, 300) + bytes(1200)),
        entry("yes", 7, b"\x01"),
    ]
    tensors = [tensor("a", (16,), 0, offsets[0]), tensor("b", (32, 2), 3, offsets[1])]
    counts = struct.pack("<IQQ", version, len(tensors), len(entries))
    header = b"GGUF" + counts + b"".join(entries) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + bytes(96 + 40)


WHOLE = small_file()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf") / "model.gguf"


def fault_of(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(ApiError) as refused:
        read_gguf(path)
    assert refused.value.status == 400
    assert refused.value.code == "invalid_model_file"
    assert str(path.parent) not in refused.value.message
    return refused.value.message


def test_a_whole_file_is_read(path: Path) -> None:
    path.write_bytes(WHOLE)
    file = read_gguf(path)
    assert file.architecture == "llama"
    assert file.context_tokens == 2048
    assert file.metadata["short"] == [1.0, 2.0]
    assert file.metadata["tokens"] is None, "long arrays are not kept"
    assert file.metadata["yes"] is True
    assert file.tensors["b"].kind == "Q4_1"
    assert file.tensors["b"].shape == (2, 32)
    assert file.tensors["b"].size == 40
    assert file.tensors["b"].offset + 40 == len(WHOLE)


@given(st.integers(0, len(WHOLE) - 1))
def test_a_file_cut_anywhere_is_refused(path: Path, length: int) -> None:
    fault_of(path, WHOLE[:length])


@given(st.integers(0, len(WHOLE) - 200), st.binary(min_size=1, max_size=9))
def test_a_damaged_file_is_read_or_refused(path: Path, position: int, damage: bytes) -> None:
    path.write_bytes(WHOLE[:position] + damage + WHOLE[position + len(damage) :])
    with contextlib.suppress(ApiError):
        file = read_gguf(path)
        assert all(one.offset + one.size <= len(WHOLE) for one in file.tensors.values())


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"PK\x03\x04" + WHOLE[4:], "no GGUF file"),
        (b"GGUF" + bytes(1000), "version"),
        (small_file(version=9), "version"),
        (small_file(offsets=(0, 32)), "overlap"),
        (small_file(offsets=(0, 97)), "misplaced"),
        (small_file(offsets=(0, 960)), "truncated"),
    ],
)
def test_what_contradicts_itself_is_refused(path: Path, data: bytes, fault: str) -> None:
    assert fault in fault_of(path, data)


def test_the_real_model_is_read_and_refused_at_every_tenth(path: Path, smollm2_gguf: Path) -> None:
    file: Any = read_gguf(smollm2_gguf)
    assert (file.architecture, file.context_tokens, len(file.tensors)) == ("llama", 8192, 272)
    size = smollm2_gguf.stat().st_size
    with smollm2_gguf.open("rb") as source:
        data = source.read()
    for tenth in range(10):
        assert "download it again" in fault_of(path, data[: size * tenth // 10])
    assert "truncated" in fault_of(path, data[:-1])
