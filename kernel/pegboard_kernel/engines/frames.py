"""The frames between the server and its children: four bytes of length, then msgpack.

The server sends an `Opening` or an `Assignment` first, then commands; a child answers with
reports. What is called by name (`Call`) is a table in the child, so that a new call changes no
frame.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from pegboard_contracts.backend import EngineDescription
from pegboard_contracts.converters import Report as WorkReport
from pegboard_contracts.engine import EngineInfo, Submission, TemplateSource, TokenEvent

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 1 << 30


class Opening(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Start a child: which backend to load, how it is configured and what to open.

    `beat_interval` is how many seconds an engine child may stay silent between steps.
    """

    description: EngineDescription
    section: dict[str, Any] = {}
    beat_interval: float = 1.0


class Assignment(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Start an operation child: what one plugin is to do, how it is configured and with what.

    `address` is what a source fetches, `order` a `ConversionOrder` with its paths as text.
    `environment` is added to that of the process, which no other process sees.
    """

    work: Literal["fetch", "convert"]
    plugin: str
    section: dict[str, Any] = {}
    address: str = ""
    order: dict[str, Any] = {}
    environment: dict[str, str] = {}


class Submit(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Hand a request to the engine."""

    submission: Submission


class Cancel(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Stop a request."""

    request_id: int


class Call(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Call a function of the child by name; an `Answer` with the same id follows."""

    call_id: int
    name: str
    arguments: dict[str, Any] = {}


class Close(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Free everything and end the process."""


class Ready(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Say that the engine is open."""

    info: EngineInfo


class Lost(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Say why the child is about to end; `error` is an `ApiError` as plain data."""

    error: dict[str, Any]


class Events(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Carry everything one step gave."""

    events: list[TokenEvent]


class Refused(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Say that the engine did not take a request."""

    request_id: int
    error: dict[str, Any]


class Beat(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Say that the child is alive between two steps."""


class Working(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Say how far an operation is; any report is a sign of life."""

    report: WorkReport


class Done(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Say that an operation is complete, and where its files are."""

    path: str


class Answer(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Answer a call with a value or an error."""

    call_id: int
    value: Any = None
    error: dict[str, Any] | None = None


class PreparerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Describe an open preparer: what the server needs to know about the template."""

    source: TemplateSource
    supports_tools: bool = False


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Carry a rendered and tokenized prompt."""

    text: str
    ids: list[int]


Command = Opening | Assignment | Submit | Cancel | Call | Close
Report = Ready | Lost | Events | Refused | Beat | Working | Done | Answer

_encoder = msgspec.msgpack.Encoder()


def encode_frame(message: msgspec.Struct) -> bytearray:
    """Encode one message with its length in front."""
    frame = bytearray(LENGTH_BYTES)
    _encoder.encode_into(message, frame, LENGTH_BYTES)
    frame[:LENGTH_BYTES] = (len(frame) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big")
    return frame


class FrameSplitter:
    """Cut a stream of bytes into the payloads of its frames."""

    def __init__(self) -> None:
        """Start with nothing held back."""
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[memoryview]:
        """Take the next bytes and return every payload that is complete now.

        The views are good until the next call. Raises `ValueError` for a length that no
        frame of ours has.
        """
        if not self._rest and int.from_bytes(data[:LENGTH_BYTES], "big") == (
            len(data) - LENGTH_BYTES
        ):
            # One frame at a time is what a running engine sends.
            return [memoryview(data)[LENGTH_BYTES:]]
        buffer: bytes | bytearray = data
        if self._rest:
            self._rest += data
            buffer = self._rest
        payloads: list[memoryview] = []
        start, end = 0, len(buffer)
        whole = memoryview(buffer)
        while end - start >= LENGTH_BYTES:
            length = int.from_bytes(whole[start : start + LENGTH_BYTES], "big")
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes")
            stop = start + LENGTH_BYTES + length
            if stop > end:
                break
            payloads.append(whole[start + LENGTH_BYTES : stop])
            start = stop
        if start == 0 and buffer is self._rest:
            # A frame in many pieces: the buffer grows in place once nobody looks at it.
            whole.release()
        else:
            self._rest = bytearray(whole[start:])
        return payloads
