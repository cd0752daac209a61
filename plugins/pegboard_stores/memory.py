"""Stores in memory: fast, bounded, and forgotten when the server stops.

The default, as the public documents describe it.
"""

from __future__ import annotations

import time
from typing import ClassVar, NamedTuple

import msgspec
from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.services import Services
from pegboard_contracts.stores import (
    ConversationStore,
    ResponseStore,
    StoredConversation,
    StoredResponse,
    StoreLimits,
    StoreProvider,
    Turn,
)

from pegboard_stores._budget import BudgetedEntries, Clock
from pegboard_stores._items import conversation_bytes, id_of_item
from pegboard_stores._turns import Node, Turns, missing_bytes, take_turn, with_items


class _Kept(NamedTuple):
    bare: StoredResponse
    node: Node
    input_length: int

    @property
    def response(self) -> StoredResponse:
        return with_items(self.bare, self.node.turn.items, self.input_length)


class MemoryResponses:
    """Keep responses in dictionaries. Runs on the event loop and never waits."""

    def __init__(self, limits: StoreLimits, clock: Clock = time.monotonic) -> None:
        """Start empty; `clock` is in seconds."""
        self.limits = limits
        self._turns = Turns()
        self._pending: dict[tuple[str, str], _Kept] = {}
        self._kept: BudgetedEntries[_Kept] = BudgetedEntries(
            limits, clock, self._leave, lambda: self._turns.bytes
        )

    async def put(self, response: StoredResponse, history: tuple[Turn, ...] = ()) -> bool:
        """Insert or replace a response."""
        key = (response.owner, response.id)
        bare, turn, input_length = take_turn(response)
        if not bare.pending and self._oversize(bare, turn, history):
            self._forget(key)
            return False
        kept = _Kept(bare, self._turns.hold(bare.owner, turn, history), input_length)
        self._forget(key)
        if bare.pending:
            self._pending[key] = kept
            return True
        ttl = self.limits.ttl_seconds if bare.ttl_seconds is None else bare.ttl_seconds
        return self._kept.insert(key, kept, bare.approximate_bytes(), ttl)

    async def get(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a response and make it the most recently used."""
        kept = self._find(owner, response_id)
        return kept.response if kept else None

    async def history(self, owner: str, response_id: str) -> tuple[Turn, ...] | None:
        """Return the chain that ends with this response."""
        kept = self._find(owner, response_id)
        return kept.node.history() if kept else None

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response."""
        self._kept.sweep()
        return self._forget((owner, response_id))

    async def pending(self) -> tuple[StoredResponse, ...]:
        """List the pending entries."""
        return tuple(kept.response for kept in self._pending.values())

    def _find(self, owner: str, response_id: str) -> _Kept | None:
        key = (owner, response_id)
        return self._pending.get(key) or self._kept.find(key)

    def _forget(self, key: tuple[str, str]) -> bool:
        waiting = self._pending.pop(key, None)
        if waiting is not None:
            self._leave(waiting)
            return True
        return self._kept.remove(key)

    def _leave(self, kept: _Kept) -> None:
        self._turns.release(kept.node)

    def _oversize(self, bare: StoredResponse, turn: Turn, history: tuple[Turn, ...]) -> bool:
        unknown = self._turns.unknown(bare.owner, history)
        size = bare.approximate_bytes() + missing_bytes((turn, *unknown))
        return size > self.limits.max_bytes or not self.limits.max_entries


class _Transcript(msgspec.Struct):
    conversation: StoredConversation
    items: list[bytes]


class MemoryConversations:
    """Keep conversations in dictionaries. Runs on the event loop and never waits."""

    def __init__(self, limits: StoreLimits, clock: Clock = time.monotonic) -> None:
        """Start empty; `clock` is in seconds."""
        self.limits = limits
        self._kept: BudgetedEntries[_Transcript] = BudgetedEntries(
            limits, clock, lambda transcript: transcript.items.clear()
        )

    async def create(self, conversation: StoredConversation, items: tuple[bytes, ...] = ()) -> bool:
        """Insert a conversation with its first items."""
        size = conversation_bytes(conversation, items)
        key = (conversation.owner, conversation.id)
        if size > self.limits.max_bytes or not self.limits.max_entries:
            return False
        transcript = _Transcript(conversation, list(items))
        return self._kept.insert(key, transcript, size, self.limits.ttl_seconds)

    async def get(self, owner: str, conversation_id: str) -> StoredConversation | None:
        """Return a conversation and make it the most recently used."""
        transcript = self._kept.find((owner, conversation_id))
        return transcript.conversation if transcript else None

    async def update(
        self, owner: str, conversation_id: str, metadata: dict[str, str]
    ) -> StoredConversation | None:
        """Replace the metadata."""
        transcript = self._kept.find((owner, conversation_id))
        if transcript is None:
            return None
        changed = msgspec.structs.replace(transcript.conversation, metadata=metadata)
        transcript.conversation = changed
        self._resize(owner, conversation_id, transcript)
        return changed

    async def delete(self, owner: str, conversation_id: str) -> bool:
        """Remove a conversation with its items."""
        self._kept.sweep()
        return self._kept.remove((owner, conversation_id))

    async def items(self, owner: str, conversation_id: str) -> tuple[bytes, ...] | None:
        """Return all items in order."""
        transcript = self._kept.find((owner, conversation_id))
        return tuple(transcript.items) if transcript else None

    async def append(self, owner: str, conversation_id: str, items: tuple[bytes, ...]) -> bool:
        """Append a whole turn, creating the conversation when it is unknown."""
        transcript = self._kept.find((owner, conversation_id))
        if transcript is None:
            if not items:
                return False
            conversation = StoredConversation(
                id=conversation_id, owner=owner, created_at=int(time.time())
            )
            return await self.create(conversation, items)
        transcript.items.extend(items)
        return self._resize(owner, conversation_id, transcript)

    async def delete_item(self, owner: str, conversation_id: str, item_id: str) -> bool:
        """Remove one item."""
        transcript = self._kept.find((owner, conversation_id))
        if transcript is None:
            return False
        for index, item in enumerate(transcript.items):
            if id_of_item(item) == item_id:
                del transcript.items[index]
                self._resize(owner, conversation_id, transcript)
                return True
        return False

    def _resize(self, owner: str, conversation_id: str, transcript: _Transcript) -> bool:
        size = conversation_bytes(transcript.conversation, transcript.items)
        return self._kept.resize((owner, conversation_id), size)


class Memory(Plugin):
    """Provide stores that live and end with the server."""

    summary: ClassVar[str] = "keeps responses and conversations in memory"

    @hookimpl
    def pegboard_provide_services(self, services: Services) -> None:
        """Provide the stores."""
        services.add(StoreProvider, self)

    def responses(self, limits: StoreLimits) -> ResponseStore:
        """Open an empty store of responses."""
        return MemoryResponses(limits)

    def conversations(self, limits: StoreLimits) -> ConversationStore:
        """Open an empty store of conversations."""
        return MemoryConversations(limits)


plugin = Memory
