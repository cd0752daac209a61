"""Stores: where responses and conversations are kept, and the laws they keep.

One plugin of kind `stores` provides a `StoreProvider`; the route families open their
stores with it and provide those as services. Laws, shown by
`pegboard_contracts.testing.stores`:

- an entry belongs to its owner; another owner sees nothing;
- its time to live counts from insertion and is not renewed by reading;
- reading makes an entry the most recently used; the least recently used goes first when
  the entries or their approximate bytes exceed the budget; exactly the budget is kept;
- an entry larger than the whole byte budget is not kept and evicts nothing;
- whole turns are appended or nothing; items are stored once, and a response keeps the
  history it was built on when an ancestor is deleted or evicted;
- a pending entry (a job that runs) is outside the time to live and the budgets.

Every method runs on the event loop and may wait for a disk. Source: decisions 17 to 22,
24c, 35 and 39.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class StoreUnavailableError(Exception):
    """Say that the store cannot be read or written now (disk full, read-only)."""


class StoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bound a store; 0 entries disables it, 0 bytes keeps nothing, 0 seconds is for ever."""

    max_entries: int
    max_bytes: int
    ttl_seconds: int


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Carry the items of one response, input first, as a JSON array. `id` is the response's."""

    id: str
    items: bytes


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Carry a response as it is kept.

    `body` is the JSON of the response object, `input_items` the JSON array of its own
    input, `events` the framed events of a stream for its replay. `previous` is the id it
    was chained to. `pending` marks a job that is not finished. `chainable` is false for
    objects that are only readable. `ttl_seconds`, when set, replaces the store's own.
    """

    id: str
    owner: str
    body: bytes
    input_items: bytes = b"[]"
    output_items: bytes = b"[]"
    events: bytes = b""
    previous: str | None = None
    status: str = "completed"
    created_at: int = 0
    pending: bool = False
    chainable: bool = True
    ttl_seconds: int | None = None

    def approximate_bytes(self) -> int:
        """Estimate what keeping this takes; the number the byte budget is about."""
        return 512 + sum(
            map(len, (self.id, self.body, self.input_items, self.output_items, self.events))
        )


class ResponseStore(Protocol):
    """Keep responses and the history behind each: a service."""

    @property
    def limits(self) -> StoreLimits:
        """Return the limits; `max_entries` 0 means that persistence is disabled."""
        ...

    async def put(self, response: StoredResponse, history: tuple[Turn, ...] = ()) -> bool:
        """Insert or replace a response whose history was `history`, oldest turn first.

        Turns that are no longer there are stored again. Returns whether the response is
        kept. Raises `StoreUnavailableError`; then nothing has changed.
        """
        ...

    async def get(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a response and make it the most recently used."""
        ...

    async def history(self, owner: str, response_id: str) -> tuple[Turn, ...] | None:
        """Return the whole chain that ends with this response, oldest turn first."""
        ...

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response; its turn stays while a later response builds on it."""
        ...

    async def pending(self) -> tuple[StoredResponse, ...]:
        """List the pending entries; at start-up those are what an earlier process left."""
        ...


class StoredConversation(msgspec.Struct, frozen=True, kw_only=True):
    """Carry a conversation without its items."""

    id: str
    owner: str
    created_at: int
    metadata: dict[str, str] = {}


class ConversationStore(Protocol):
    """Keep conversations and their items, in order: a service.

    An item is one JSON object with an `id`.
    """

    @property
    def limits(self) -> StoreLimits:
        """Return the limits; `max_entries` 0 means that conversations are disabled."""
        ...

    async def create(self, conversation: StoredConversation, items: tuple[bytes, ...] = ()) -> bool:
        """Insert a conversation with its first items; returns whether it is kept."""
        ...

    async def get(self, owner: str, conversation_id: str) -> StoredConversation | None:
        """Return a conversation and make it the most recently used."""
        ...

    async def update(
        self, owner: str, conversation_id: str, metadata: dict[str, str]
    ) -> StoredConversation | None:
        """Replace the metadata; its time to live goes on."""
        ...

    async def delete(self, owner: str, conversation_id: str) -> bool:
        """Remove a conversation with its items."""
        ...

    async def items(self, owner: str, conversation_id: str) -> tuple[bytes, ...] | None:
        """Return all items in order; `None` for an unknown conversation."""
        ...

    async def append(self, owner: str, conversation_id: str, items: tuple[bytes, ...]) -> bool:
        """Append a whole turn or nothing, creating the conversation when it is unknown.

        Returns whether the conversation is kept: one that outgrows the byte budget goes.
        """
        ...

    async def delete_item(self, owner: str, conversation_id: str, item_id: str) -> bool:
        """Remove one item; false when there is none of that id."""
        ...


class StoreProvider(Protocol):
    """Open stores: the service of a plugin of kind `stores`. Each is opened once."""

    def responses(self, limits: StoreLimits) -> ResponseStore:
        """Open the store of responses; raises `StoreUnavailableError` saying what to do."""
        ...

    def conversations(self, limits: StoreLimits) -> ConversationStore:
        """Open the store of conversations; raises `StoreUnavailableError` saying what to do."""
        ...
