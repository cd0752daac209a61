"""Frames between the server and its children, however the pipe cuts them."""

from __future__ import annotations

import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_contracts.engine import TokenEvent
from pegboard_kernel.child.pipe import CommandPipe, SelectedSource, ThreadedSource
from pegboard_kernel.engines.frames import (
    Beat,
    Call,
    Cancel,
    Close,
    Events,
    FrameSplitter,
    Report,
    encode_frame,
)

decoder = msgspec.msgpack.Decoder(Report)


@given(st.lists(st.text(max_size=300), max_size=6), st.lists(st.integers(0, 90), max_size=20))
def test_frames_come_out_as_they_went_in(texts: list[str], sizes: list[int]) -> None:
    sent: list[Report] = [Events([TokenEvent(1, text, [7])]) for text in texts]
    sent.append(Beat())
    stream = b"".join(encode_frame(report) for report in sent)
    splitter = FrameSplitter()
    received: list[Report] = []
    for size in sizes:
        received += [decoder.decode(payload) for payload in splitter.feed(stream[:size])]
        stream = stream[size:]
    received += [decoder.decode(payload) for payload in splitter.feed(stream)]
    assert received == sent


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        FrameSplitter().feed(b"Hello, here is a library's output.")


@pytest.mark.parametrize("source", [SelectedSource, ThreadedSource])
def test_commands_are_read_in_order_and_without_waiting(
    source: type[SelectedSource | ThreadedSource],
) -> None:
    reading, writing = os.pipe()
    pipe = CommandPipe(source(reading), writing)
    assert pipe.receive(0) == []
    assert pipe.receive(0.01) == []
    commands = [Cancel(1), Call(2, "inspect", {"a": [1]}), Close()]
    os.write(writing, b"".join(encode_frame(command) for command in commands))
    assert pipe.receive_first() == commands[0]
    assert pipe.receive(None) == commands[1:]
    assert pipe.receive(0) == []
