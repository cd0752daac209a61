"""Conversations: transcripts that responses read from and append to."""

# No `from __future__ import annotations`: FastAPI evaluates the annotations of endpoints, and
# the types they name are imported inside the function.

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from pegboard_contracts.plugin import Plugin, PluginSettings, hookimpl
from pegboard_contracts.server import ServerInfo
from pegboard_contracts.services import Services
from pegboard_contracts.stores import ConversationStore, StoreLimits, StoreProvider
from pydantic import Field

from pegboard_routes._responses.shelf import Transcripts

if TYPE_CHECKING:
    from fastapi import APIRouter


class Settings(PluginSettings):
    """Say how many conversations are kept for how long."""

    store_max_entries: int = Field(
        default=256,
        ge=0,
        description="Conversations that are kept; 0 disables them.",
        json_schema_extra={
            "flag": "--conversation-store-max-entries",
            "env": ["LLAMA_ARG_CONVERSATION_STORE_MAX_ENTRIES"],
        },
    )
    store_max_bytes: int = Field(
        default=67_108_864,
        ge=0,
        description="Approximate bytes of kept conversations; 0 keeps none.",
        json_schema_extra={
            "flag": "--conversation-store-max-bytes",
            "env": ["MLXCEL_CONVERSATION_STORE_MAX_BYTES"],
        },
    )
    store_ttl_secs: int = Field(
        default=3600,
        ge=0,
        description="Seconds a conversation is kept, from its creation on; 0 is for ever.",
        json_schema_extra={
            "flag": "--conversation-store-ttl-secs",
            "env": ["LLAMA_ARG_CONVERSATION_STORE_TTL_SECS"],
        },
    )


class Conversations(Plugin):
    """Serve `/v1/conversations` and everything below it, with and without `/v1`."""

    summary = "POST /v1/conversations and their items"
    after = ("memory", "sqlite")
    Settings: ClassVar[type[PluginSettings]] = Settings

    @hookimpl
    def pegboard_provide_services(self, services: Services) -> None:
        """Open the store of conversations."""
        provider = services.find(StoreProvider)
        if provider is None:
            return
        settings = cast("Settings", self.settings)
        limits = StoreLimits(
            max_entries=settings.store_max_entries,
            max_bytes=settings.store_max_bytes,
            ttl_seconds=settings.store_ttl_secs,
        )
        services.add(ConversationStore, provider.conversations(limits))

    @hookimpl
    def pegboard_provide_routers(self, services: Services) -> "Sequence[APIRouter]":
        """Provide the routes."""
        from pegboard_routes._responses.conversation_routes import (  # noqa: PLC0415 - fastapi
            ConversationRoutes,
        )

        transcripts = Transcripts(services.find(ConversationStore))
        return [ConversationRoutes(transcripts, services.get(ServerInfo)).router()]


plugin = Conversations
