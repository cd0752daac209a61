"""The Responses API: create, poll, replay, cancel, compact and count."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, ClassVar, cast

from pegboard_contracts.generation import Generator
from pegboard_contracts.models import ModelDirectory
from pegboard_contracts.plugin import Plugin, PluginSettings, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pegboard_contracts.stores import (
    ConversationStore,
    ResponseStore,
    StoreLimits,
    StoreProvider,
)

from pegboard_routes._responses.desk import Desk
from pegboard_routes._responses.settings import Settings
from pegboard_routes._responses.shelf import Shelf, Transcripts

if TYPE_CHECKING:
    from fastapi import APIRouter


class Responses(Plugin):
    """Serve `/v1/responses` and everything below it, with and without `/v1`."""

    summary = "POST /v1/responses and what belongs to it: stores, jobs, streams, compaction"
    after = ("memory", "sqlite", "conversations")
    Settings: ClassVar[type[PluginSettings]] = Settings

    _desk: Desk

    @hookimpl
    def pegboard_provide_services(self, services: Services) -> None:
        """Open the store of responses."""
        provider = services.find(StoreProvider)
        if provider is not None:
            services.add(ResponseStore, provider.responses(self._limits))

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from pegboard_routes._responses.routes import ResponsesRoutes  # noqa: PLC0415 - fastapi

        settings = cast("Settings", self.settings)
        self._desk = Desk(
            services.get(Generator),
            services.get(ModelDirectory),
            Shelf(services.find(ResponseStore)),
            Transcripts(services.find(ConversationStore)),
            settings,
        )
        return [ResponsesRoutes(self._desk, settings, services.get(ServerInfo)).router()]

    @hookimpl
    def pegboard_provide_lifespan(self, services: Services) -> AbstractAsyncContextManager[None]:
        """Fail what an earlier process left, and at the end what still runs."""
        del services
        return self._serving()

    @property
    def _limits(self) -> StoreLimits:
        settings = cast("Settings", self.settings)
        return StoreLimits(
            max_entries=settings.store_max_entries,
            max_bytes=settings.store_max_bytes,
            ttl_seconds=settings.store_ttl_secs,
        )

    @asynccontextmanager
    async def _serving(self) -> AsyncGenerator[None, None]:
        await self._desk.recover()
        try:
            yield
        finally:
            await self._desk.close()


plugin = Responses
