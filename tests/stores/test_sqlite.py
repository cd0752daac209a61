"""The SQLite stores keep the laws, and outlive what ends a server."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pegboard_contracts.stores import (
    ConversationStore,
    ResponseStore,
    StoreLimits,
    StoreUnavailableError,
)
from pegboard_contracts.testing.stores import (
    LIMITS,
    Clock,
    ConversationStoreLaws,
    ResponseStoreLaws,
    response,
)
from pegboard_stores._database import SCHEMA_VERSION, Database
from pegboard_stores._sqlite_conversations import SqliteConversations
from pegboard_stores._sqlite_responses import SqliteResponses


class _OpenDatabases:
    def __init__(self) -> None:
        self._open: dict[int, tuple[Database, tempfile.TemporaryDirectory[str]]] = {}

    def database(self) -> Database:
        folder = tempfile.TemporaryDirectory()
        database = Database(Path(folder.name) / "state.sqlite")
        self._open[id(database)] = (database, folder)
        return database

    def close(self) -> None:
        for database, folder in self._open.values():
            database.close()
            folder.cleanup()
        self._open.clear()


class TestSqliteResponses(ResponseStoreLaws):
    databases = _OpenDatabases()

    def open_store(self, limits: StoreLimits, clock: Clock) -> ResponseStore:
        return SqliteResponses(self.databases.database(), limits, clock)

    def close_stores(self) -> None:
        self.databases.close()


class TestSqliteConversations(ConversationStoreLaws):
    databases = _OpenDatabases()

    def open_store(self, limits: StoreLimits, clock: Clock) -> ConversationStore:
        return SqliteConversations(self.databases.database(), limits, clock)

    def close_stores(self) -> None:
        self.databases.close()


def test_entries_outlive_the_database_object(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = Database(tmp_path / "state.sqlite")
        await SqliteResponses(first, LIMITS).put(response("a"))
        first.close()
        second = Database(tmp_path / "state.sqlite")
        assert await SqliteResponses(second, LIMITS).get("anonymous", "a") == response("a")
        second.close()

    asyncio.run(scenario())


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnavailableError, match="newer"):
        Database(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    path.write_bytes(b"no database at all, but long enough to be read as one" * 40)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailableError, match="cannot be opened"):
        Database(path)
    assert path.read_bytes() == before


def test_two_servers_do_not_share_a_file(tmp_path: Path) -> None:
    first = Database(tmp_path / "state.sqlite")
    with pytest.raises(StoreUnavailableError, match="another running server"):
        Database(tmp_path / "state.sqlite")
    first.close()
    Database(tmp_path / "state.sqlite").close()


_WRITER = """
import asyncio, sys
from pathlib import Path
from pegboard_contracts.testing.stores import LIMITS, response
from pegboard_stores._database import Database
from pegboard_stores._sqlite_responses import SqliteResponses

async def main():
    store = SqliteResponses(Database(Path(sys.argv[1])), LIMITS)
    for number in range(100000):
        await store.put(response(f"r{number}", text="t" * 5000))
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 7, 23])
def test_kill_at_any_moment_loses_nothing_acknowledged(tmp_path: Path, after: int) -> None:
    path = tmp_path / "state.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        last = max(int(writer.stdout.readline()) for _ in range(after))
        os.kill(writer.pid, signal.SIGKILL)

    async def check() -> None:
        database = Database(path)
        store = SqliteResponses(database, LIMITS)
        # The writer went on for a moment: what it told last may have been evicted by newer ones.
        newest = [await store.get("anonymous", f"r{last + more}") for more in range(2000)]
        assert any(newest)
        database.close()

    asyncio.run(check())


def test_a_full_disk_is_told_and_nothing_changes(tmp_path: Path) -> None:
    async def scenario() -> None:
        database = Database(tmp_path / "state.sqlite")
        store = SqliteResponses(database, LIMITS)
        await store.put(response("a"))
        pages = await database.run(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
        await database.run(lambda c: c.execute(f"PRAGMA max_page_count = {pages}").fetchone())
        with pytest.raises(StoreUnavailableError, match="SQLITE_FULL"):
            await store.put(response("b", text="z" * 400_000))
        assert await store.get("anonymous", "a") == response("a")
        database.close()

    asyncio.run(scenario())
