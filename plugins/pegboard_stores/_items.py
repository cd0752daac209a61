"""What the stores need to know of an item: its id and its size."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from pegboard_contracts.stores import StoredConversation

_OVERHEAD = 256
_PER_ITEM = 64


class _Item(msgspec.Struct):
    id: str = ""


_decoder = msgspec.json.Decoder(_Item)


def id_of_item(item: bytes) -> str:
    """Read the id of an item's JSON, without building the rest of it."""
    return _decoder.decode(item).id


def conversation_bytes(conversation: StoredConversation, items: Iterable[bytes]) -> int:
    """Estimate what keeping a conversation takes."""
    metadata = sum(len(key) + len(value) for key, value in conversation.metadata.items())
    return _OVERHEAD + metadata + sum(len(item) + _PER_ITEM for item in items)
