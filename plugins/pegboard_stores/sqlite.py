"""Stores in one SQLite file of the data directory, `state.sqlite`.

They survive a restart, and `kill -9` at any moment: every change is one transaction in
the write-ahead log. Chosen with `--store sqlite`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import ClassVar

from pegboard_contracts.plugin import Plugin, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pegboard_contracts.stores import (
    ConversationStore,
    ResponseStore,
    StoreLimits,
    StoreProvider,
)

from pegboard_stores._database import Database
from pegboard_stores._sqlite_conversations import SqliteConversations
from pegboard_stores._sqlite_responses import SqliteResponses


class Sqlite(Plugin):
    """Provide stores that outlive the server."""

    summary: ClassVar[str] = "keeps responses and conversations in a file"

    _path: Path
    _database: Database | None = None

    @hookimpl
    def pegboard_provide_services(self, services: Services) -> None:
        """Provide the stores; the file is opened when the first of them is."""
        folder = services.get(ServerInfo).data_dir
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "state.sqlite"
        services.add(StoreProvider, self)

    @hookimpl
    def pegboard_provide_lifespan(self, services: Services) -> AbstractAsyncContextManager[None]:
        """Close the file after the last request."""
        del services
        return self._closing()

    def responses(self, limits: StoreLimits) -> ResponseStore:
        """Open the store of responses."""
        return SqliteResponses(self._open(), limits)

    def conversations(self, limits: StoreLimits) -> ConversationStore:
        """Open the store of conversations."""
        return SqliteConversations(self._open(), limits)

    def _open(self) -> Database:
        if self._database is None:
            self._database = Database(self._path)
        return self._database

    @asynccontextmanager
    async def _closing(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if self._database is not None:
                self._database.close()


plugin = Sqlite
