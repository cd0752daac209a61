"""Texts that clients carry for us: base64url JSON, client data like any other input."""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

LONGEST_OPAQUE = 16 * 1024 * 1024
"""Characters of an opaque text that are looked at."""


class Capsule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hold what a compaction item carries: the summary and the items that were retained."""

    version: int
    summary: str
    items: list[dict[str, Any]]


class Thought(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hold what a reasoning item carries for clients that store nothing."""

    version: int
    reasoning: str


def seal(content: Capsule | Thought) -> str:
    """Encode what a client is to send back. It is not encrypted."""
    return base64.urlsafe_b64encode(msgspec.json.encode(content)).decode()


def open_capsule(text: str) -> Capsule:
    """Decode a compaction item's content; raises `ValueError` for anything we did not make."""
    capsule = _decoded(text, Capsule)
    if capsule.version != 1:
        raise ValueError("unknown version")
    return capsule


def open_thought(text: str) -> str | None:
    """Decode a reasoning item's content; another server's says nothing."""
    try:
        return _decoded(text, Thought).reasoning
    except ValueError:
        return None


def _decoded(text: str, kind: type[T]) -> T:
    try:
        raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=kind)
    except (binascii.Error, UnicodeEncodeError, msgspec.DecodeError, RecursionError):
        raise ValueError("not what this server makes") from None
