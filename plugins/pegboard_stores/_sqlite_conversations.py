"""Conversations in SQLite: the laws of the memory store, as statements."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

import msgspec
from pegboard_contracts.stores import StoredConversation, StoreLimits

from pegboard_stores._database import Database
from pegboard_stores._items import conversation_bytes, id_of_item


class SqliteConversations:
    """Keep conversations in a file. Methods run on the event loop, statements in its thread."""

    def __init__(
        self, database: Database, limits: StoreLimits, clock: Callable[[], float] = time.time
    ) -> None:
        """Take the open database; `clock` is in seconds since 1970."""
        self.limits = limits
        self._database = database
        self._clock = clock

    async def create(self, conversation: StoredConversation, items: tuple[bytes, ...] = ()) -> bool:
        """Insert a conversation with its first items."""
        return await self._database.run(lambda c: self._create(c, conversation, items))

    async def get(self, owner: str, conversation_id: str) -> StoredConversation | None:
        """Return a conversation and make it the most recently used."""

        def work(connection: sqlite3.Connection) -> StoredConversation | None:
            found = self._find(connection, owner, conversation_id)
            return found[1] if found else None

        return await self._database.run(work)

    async def update(
        self, owner: str, conversation_id: str, metadata: dict[str, str]
    ) -> StoredConversation | None:
        """Replace the metadata."""

        def work(connection: sqlite3.Connection) -> StoredConversation | None:
            found = self._find(connection, owner, conversation_id)
            if found is None:
                return None
            number, conversation = found
            changed = msgspec.structs.replace(conversation, metadata=metadata)
            connection.execute(
                "UPDATE conversations SET metadata = ? WHERE number = ?",
                (msgspec.json.encode(metadata), number),
            )
            self._resize(connection, number, changed)
            return changed

        return await self._database.run(work)

    async def delete(self, owner: str, conversation_id: str) -> bool:
        """Remove a conversation with its items."""

        def work(connection: sqlite3.Connection) -> bool:
            self._sweep(connection)
            cursor = connection.execute(
                "DELETE FROM conversations WHERE owner = ? AND id = ?", (owner, conversation_id)
            )
            return cursor.rowcount > 0

        return await self._database.run(work)

    async def items(self, owner: str, conversation_id: str) -> tuple[bytes, ...] | None:
        """Return all items in order."""

        def work(connection: sqlite3.Connection) -> tuple[bytes, ...] | None:
            found = self._find(connection, owner, conversation_id)
            return _bodies(connection, found[0]) if found else None

        return await self._database.run(work)

    async def append(self, owner: str, conversation_id: str, items: tuple[bytes, ...]) -> bool:
        """Append a whole turn, creating the conversation when it is unknown."""

        def work(connection: sqlite3.Connection) -> bool:
            found = self._find(connection, owner, conversation_id)
            if found is None:
                conversation = StoredConversation(
                    id=conversation_id, owner=owner, created_at=int(self._clock())
                )
                return bool(items) and self._create(connection, conversation, items)
            _add_items(connection, found[0], items)
            return self._resize(connection, *found)

        return await self._database.run(work)

    async def delete_item(self, owner: str, conversation_id: str, item_id: str) -> bool:
        """Remove one item."""

        def work(connection: sqlite3.Connection) -> bool:
            found = self._find(connection, owner, conversation_id)
            if found is None:
                return False
            row = connection.execute(
                "SELECT number FROM items WHERE conversation = ? AND id = ? "
                "ORDER BY number LIMIT 1",
                (found[0], item_id),
            ).fetchone()
            if row is None:
                return False
            connection.execute("DELETE FROM items WHERE number = ?", row)
            self._resize(connection, *found)
            return True

        return await self._database.run(work)

    def _create(
        self,
        connection: sqlite3.Connection,
        conversation: StoredConversation,
        items: tuple[bytes, ...],
    ) -> bool:
        self._sweep(connection)
        size = conversation_bytes(conversation, items)
        if size > self.limits.max_bytes or not self.limits.max_entries:
            return False
        key = (conversation.owner, conversation.id)
        connection.execute("DELETE FROM conversations WHERE owner = ? AND id = ?", key)
        ttl = self.limits.ttl_seconds
        cursor = connection.execute(
            "INSERT INTO conversations (owner, id, metadata, created_at, expires_at, bytes, used)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                *key,
                msgspec.json.encode(conversation.metadata),
                conversation.created_at,
                self._clock() + ttl if ttl else None,
                size,
                self._database.next_use(connection),
            ),
        )
        _add_items(connection, cursor.lastrowid or 0, items)
        self._evict(connection)
        return True

    def _find(
        self, connection: sqlite3.Connection, owner: str, conversation_id: str
    ) -> tuple[int, StoredConversation] | None:
        self._sweep(connection)
        row = connection.execute(
            "UPDATE conversations SET used = ? WHERE owner = ? AND id = ? "
            "RETURNING number, created_at, metadata",
            (self._database.next_use(connection), owner, conversation_id),
        ).fetchone()
        if row is None:
            return None
        number, created_at, metadata = row
        return number, StoredConversation(
            id=conversation_id,
            owner=owner,
            created_at=created_at,
            metadata=msgspec.json.decode(metadata, type=dict[str, str]),
        )

    def _resize(
        self, connection: sqlite3.Connection, number: int, conversation: StoredConversation
    ) -> bool:
        size = conversation_bytes(conversation, _bodies(connection, number))
        if size > self.limits.max_bytes:
            connection.execute("DELETE FROM conversations WHERE number = ?", (number,))
            return False
        connection.execute("UPDATE conversations SET bytes = ? WHERE number = ?", (size, number))
        self._evict(connection)
        return True

    def _sweep(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM conversations WHERE expires_at <= ?", (self._clock(),))

    def _evict(self, connection: sqlite3.Connection) -> None:
        while True:
            entries, size = connection.execute(
                "SELECT conversation_entries, conversation_bytes FROM totals"
            ).fetchone()
            if entries <= self.limits.max_entries and size <= self.limits.max_bytes:
                return
            connection.execute(
                "DELETE FROM conversations WHERE number = "
                "(SELECT number FROM conversations ORDER BY used LIMIT 1)"
            )


def _bodies(connection: sqlite3.Connection, number: int) -> tuple[bytes, ...]:
    rows = connection.execute(
        "SELECT body FROM items WHERE conversation = ? ORDER BY number", (number,)
    )
    return tuple(row[0] for row in rows)


def _add_items(connection: sqlite3.Connection, number: int, items: tuple[bytes, ...]) -> None:
    connection.executemany(
        "INSERT INTO items (conversation, id, body) VALUES (?, ?, ?)",
        [(number, id_of_item(item), item) for item in items],
    )
