"""Responses in SQLite: the laws of the memory store, as statements."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any

from pegboard_contracts.stores import StoredResponse, StoreLimits, Turn

from pegboard_stores._database import Database
from pegboard_stores._turns import missing_bytes, take_turn, with_items

_FIELDS = (
    "id",
    "owner",
    "body",
    "events",
    "previous",
    "status",
    "created_at",
    "pending",
    "chainable",
    "ttl_seconds",
)
_SELECT = (
    "SELECT responses.id, responses.owner, body, events, previous, status, created_at, pending, "
    "chainable, ttl_seconds, items, input_length "
    "FROM responses JOIN turns ON turns.number = responses.turn WHERE "
)


class SqliteResponses:
    """Keep responses in a file. Methods run on the event loop, statements in its thread."""

    def __init__(
        self, database: Database, limits: StoreLimits, clock: Callable[[], float] = time.time
    ) -> None:
        """Take the open database; `clock` is in seconds since 1970."""
        self.limits = limits
        self._database = database
        self._clock = clock

    async def put(self, response: StoredResponse, history: tuple[Turn, ...] = ()) -> bool:
        """Insert or replace a response."""
        return await self._database.run(lambda c: self._put(c, response, history))

    async def get(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a response and make it the most recently used."""

        def work(connection: sqlite3.Connection) -> StoredResponse | None:
            self._sweep(connection)
            key = (owner, response_id)
            row = connection.execute(
                _SELECT + "responses.owner = ? AND responses.id = ?", key
            ).fetchone()
            if row is None:
                return None
            self._touch(connection, key)
            return _response(row)

        return await self._database.run(work)

    async def history(self, owner: str, response_id: str) -> tuple[Turn, ...] | None:
        """Return the chain that ends with this response."""

        def work(connection: sqlite3.Connection) -> tuple[Turn, ...] | None:
            self._sweep(connection)
            key = (owner, response_id)
            row = connection.execute(
                "SELECT turn FROM responses WHERE owner = ? AND id = ?", key
            ).fetchone()
            if row is None:
                return None
            self._touch(connection, key)
            return _chain(connection, row[0])

        return await self._database.run(work)

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response."""

        def work(connection: sqlite3.Connection) -> bool:
            self._sweep(connection)
            return _forget(connection, owner, response_id)

        return await self._database.run(work)

    async def pending(self) -> tuple[StoredResponse, ...]:
        """List the pending entries."""

        def work(connection: sqlite3.Connection) -> tuple[StoredResponse, ...]:
            rows = connection.execute(_SELECT + "pending = 1")
            return tuple(_response(row) for row in rows)

        return await self._database.run(work)

    def _put(
        self, connection: sqlite3.Connection, response: StoredResponse, history: tuple[Turn, ...]
    ) -> bool:
        self._sweep(connection)
        bare, turn, input_length = take_turn(response)
        owner = bare.owner
        parent, absent = _known(connection, owner, history)
        if not bare.pending and self._oversize(bare, turn, absent):
            _forget(connection, owner, bare.id)
            return False
        for earlier in absent:
            parent = _add_turn(connection, owner, earlier, parent)
        number = _add_turn(connection, owner, turn, parent)
        connection.execute("UPDATE turns SET needed = needed + 1 WHERE number = ?", (number,))
        _forget(connection, owner, bare.id)
        self._insert(connection, bare, number, input_length)
        if bare.pending:
            return True
        self._evict(connection)
        found = connection.execute(
            "SELECT 1 FROM responses WHERE owner = ? AND id = ?", (owner, bare.id)
        )
        return found.fetchone() is not None

    def _insert(
        self, connection: sqlite3.Connection, bare: StoredResponse, turn: int, input_length: int
    ) -> None:
        ttl = self.limits.ttl_seconds if bare.ttl_seconds is None else bare.ttl_seconds
        expires = self._clock() + ttl if ttl and not bare.pending else None
        connection.execute(
            "INSERT INTO responses (owner, id, turn, input_length, body, events, previous, "
            "status, created_at, pending, chainable, ttl_seconds, expires_at, bytes, used) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                bare.owner,
                bare.id,
                turn,
                input_length,
                bare.body,
                bare.events,
                bare.previous,
                bare.status,
                bare.created_at,
                bare.pending,
                bare.chainable,
                bare.ttl_seconds,
                expires,
                bare.approximate_bytes(),
                self._database.next_use(connection),
            ),
        )

    def _touch(self, connection: sqlite3.Connection, key: tuple[str, str]) -> None:
        connection.execute(
            "UPDATE responses SET used = ? WHERE owner = ? AND id = ?",
            (self._database.next_use(connection), *key),
        )

    def _oversize(self, bare: StoredResponse, turn: Turn, absent: tuple[Turn, ...]) -> bool:
        size = bare.approximate_bytes() + missing_bytes((turn, *absent))
        return size > self.limits.max_bytes or not self.limits.max_entries

    def _sweep(self, connection: sqlite3.Connection) -> None:
        expired = connection.execute(
            "SELECT owner, id FROM responses WHERE expires_at <= ?", (self._clock(),)
        ).fetchall()
        for owner, response_id in expired:
            _forget(connection, owner, response_id)

    def _evict(self, connection: sqlite3.Connection) -> None:
        while True:
            entries, size = connection.execute(
                "SELECT response_entries, response_bytes + turn_bytes FROM totals"
            ).fetchone()
            if not entries:
                return
            if entries <= self.limits.max_entries and size <= self.limits.max_bytes:
                return
            oldest = connection.execute(
                "SELECT owner, id FROM responses WHERE pending = 0 ORDER BY used LIMIT 1"
            ).fetchone()
            _forget(connection, *oldest)


def _response(row: tuple[Any, ...]) -> StoredResponse:
    *fields, items, input_length = row
    values = dict(zip(_FIELDS, fields, strict=True))
    values["pending"], values["chainable"] = bool(values["pending"]), bool(values["chainable"])
    return with_items(StoredResponse(**values), items, input_length)


def _known(
    connection: sqlite3.Connection, owner: str, history: tuple[Turn, ...]
) -> tuple[int | None, tuple[Turn, ...]]:
    for index in range(len(history), 0, -1):
        row = connection.execute(
            "SELECT number FROM turns WHERE owner = ? AND id = ? AND current = 1",
            (owner, history[index - 1].id),
        ).fetchone()
        if row is not None:
            return row[0], history[index:]
    return None, history


def _add_turn(connection: sqlite3.Connection, owner: str, turn: Turn, parent: int | None) -> int:
    connection.execute(
        "UPDATE turns SET current = 0 WHERE owner = ? AND id = ? AND current = 1", (owner, turn.id)
    )
    connection.execute("UPDATE turns SET needed = needed + 1 WHERE number = ?", (parent,))
    cursor = connection.execute(
        "INSERT INTO turns (owner, id, parent, items, bytes, needed, current) "
        "VALUES (?, ?, ?, ?, ?, 0, 1)",
        (owner, turn.id, parent, turn.items, missing_bytes((turn,))),
    )
    return cursor.lastrowid or 0


def _chain(connection: sqlite3.Connection, number: int) -> tuple[Turn, ...]:
    numbers = connection.execute(
        "WITH RECURSIVE chain (number, parent, depth) AS ("
        "SELECT number, parent, 0 FROM turns WHERE number = ? UNION ALL "
        "SELECT turns.number, turns.parent, depth + 1 "
        "FROM turns JOIN chain ON turns.number = chain.parent) "
        "SELECT number FROM chain ORDER BY depth DESC",
        (number,),
    ).fetchall()
    # One look-up a turn: sorting the items themselves would copy them all, twice as slow.
    rows = (
        connection.execute("SELECT id, items FROM turns WHERE number = ?", row).fetchone()
        for row in numbers
    )
    return tuple(Turn(id=turn_id, items=items) for turn_id, items in rows)


def _forget(connection: sqlite3.Connection, owner: str, response_id: str) -> bool:
    key = (owner, response_id)
    row = connection.execute(
        "DELETE FROM responses WHERE owner = ? AND id = ? RETURNING turn", key
    ).fetchone()
    if row is None:
        return False
    number: int | None = row[0]
    while number is not None:
        needed, parent = connection.execute(
            "UPDATE turns SET needed = needed - 1 WHERE number = ? RETURNING needed, parent",
            (number,),
        ).fetchone()
        if needed:
            break
        connection.execute("DELETE FROM turns WHERE number = ?", (number,))
        number = parent
    return True
