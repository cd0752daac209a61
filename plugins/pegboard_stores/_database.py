"""One SQLite file, one thread that works on it, and its schema."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pegboard_contracts.stores import StoreUnavailableError

T = TypeVar("T")

_MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE turns (
        number INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        parent INTEGER,
        needed INTEGER NOT NULL,
        current INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        items BLOB NOT NULL
    );
    CREATE UNIQUE INDEX turns_by_id ON turns (owner, id) WHERE current = 1;
    CREATE TABLE responses (
        number INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        turn INTEGER NOT NULL,
        input_length INTEGER NOT NULL,
        previous TEXT,
        status TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        pending INTEGER NOT NULL,
        chainable INTEGER NOT NULL,
        ttl_seconds INTEGER,
        expires_at REAL,
        used INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        body BLOB NOT NULL,
        events BLOB NOT NULL,
        UNIQUE (owner, id)
    );
    CREATE INDEX responses_by_use ON responses (pending, used);
    CREATE INDEX responses_by_expiry ON responses (expires_at);
    CREATE TABLE conversations (
        number INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        metadata BLOB NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at REAL,
        used INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        UNIQUE (owner, id)
    );
    CREATE INDEX conversations_by_use ON conversations (used);
    CREATE INDEX conversations_by_expiry ON conversations (expires_at);
    CREATE TABLE items (
        number INTEGER PRIMARY KEY,
        conversation INTEGER NOT NULL REFERENCES conversations (number) ON DELETE CASCADE,
        id TEXT NOT NULL,
        body BLOB NOT NULL
    );
    CREATE INDEX items_by_conversation ON items (conversation, number);

    -- What the budgets compare, kept by triggers so that no change scans a table.
    CREATE TABLE totals (
        uses INTEGER NOT NULL,
        response_entries INTEGER NOT NULL,
        response_bytes INTEGER NOT NULL,
        turn_bytes INTEGER NOT NULL,
        conversation_entries INTEGER NOT NULL,
        conversation_bytes INTEGER NOT NULL
    );
    INSERT INTO totals VALUES (0, 0, 0, 0, 0, 0);
    CREATE TRIGGER turn_in AFTER INSERT ON turns BEGIN
        UPDATE totals SET turn_bytes = turn_bytes + new.bytes; END;
    CREATE TRIGGER turn_out AFTER DELETE ON turns BEGIN
        UPDATE totals SET turn_bytes = turn_bytes - old.bytes; END;
    CREATE TRIGGER response_in AFTER INSERT ON responses WHEN new.pending = 0 BEGIN
        UPDATE totals SET response_entries = response_entries + 1,
            response_bytes = response_bytes + new.bytes; END;
    CREATE TRIGGER response_out AFTER DELETE ON responses WHEN old.pending = 0 BEGIN
        UPDATE totals SET response_entries = response_entries - 1,
            response_bytes = response_bytes - old.bytes; END;
    CREATE TRIGGER conversation_in AFTER INSERT ON conversations BEGIN
        UPDATE totals SET conversation_entries = conversation_entries + 1,
            conversation_bytes = conversation_bytes + new.bytes; END;
    CREATE TRIGGER conversation_resized AFTER UPDATE OF bytes ON conversations BEGIN
        UPDATE totals SET conversation_bytes = conversation_bytes + new.bytes - old.bytes; END;
    CREATE TRIGGER conversation_out AFTER DELETE ON conversations BEGIN
        UPDATE totals SET conversation_entries = conversation_entries - 1,
            conversation_bytes = conversation_bytes - old.bytes; END;
    """,
)
"""Each entry brings the file from its index to the next version; never change one."""

SCHEMA_VERSION = len(_MIGRATIONS)


class Database:
    """Run functions on a connection, each in its own transaction, in order, in one thread."""

    def __init__(self, path: Path) -> None:
        """Open or create the file and bring its schema up to date.

        Raises `StoreUnavailableError` for a file that is in use, newer than this program,
        or no database; such a file is left as it is.
        """
        self._lock = _lock(path)
        try:
            self._connection = _connect(path)
        except BaseException:
            self._lock.release()
            raise
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pegboard-sqlite")

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a transaction; raises `StoreUnavailableError` when the disk refuses."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._thread, self._transact, work))

    @staticmethod
    def next_use(connection: sqlite3.Connection) -> int:
        """Count one use and return its number; the larger, the more recent."""
        return int(
            connection.execute("UPDATE totals SET uses = uses + 1 RETURNING uses").fetchone()[0]
        )

    def close(self) -> None:
        """Finish what is running and close the file; idempotent."""
        self._thread.shutdown(wait=True)
        self._connection.close()
        self._lock.release()

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            reason = f"the store's disk cannot be written or read ({error.sqlite_errorname})"
            raise StoreUnavailableError(reason) from error
        return result


def _lock(path: Path) -> Any:  # noqa: ANN401 - the lock class is imported late
    from filelock import FileLock, Timeout  # noqa: PLC0415 - only this plugin needs it

    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        message = (
            "the store belongs to another running server; stop that one or give this one "
            "another --data-dir"
        )
        raise StoreUnavailableError(message) from None
    except OSError as error:
        message = f"the data directory cannot be written ({error.strerror})"
        raise StoreUnavailableError(message) from error
    return lock


def _connect(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        message = f"{path.name} cannot be opened as a store ({error}); move it away"
        raise StoreUnavailableError(message) from error
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        message = (
            f"the store was written by a newer Pegboard (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); update Pegboard or give it another --data-dir"
        )
        raise StoreUnavailableError(message)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    for number in range(version, SCHEMA_VERSION):
        script = f"BEGIN; {_MIGRATIONS[number]} PRAGMA user_version = {number + 1}; COMMIT;"
        connection.executescript(script)
