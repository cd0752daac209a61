"""What plugins may know about the server they run in."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec


class PluginState(StrEnum):
    """Name the states of a plugin's record."""

    ACTIVE = "active"
    DISABLED = "disabled"
    MISSING = "missing"
    FAILED = "failed"
    INCOMPATIBLE = "incompatible"
    BLOCKED = "blocked"


class PluginRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Show a plugin: where it comes from, how it is, why, and what to do about it."""

    kind: str
    name: str
    state: PluginState
    summary: str = ""
    version: str = ""
    distribution: str = ""
    reason: str | None = None
    remedy: str | None = None
    required: bool = False


class PluginDirectory(Protocol):
    """List the plugins of this server; the same records as `pegboard plugins list`."""

    def plugins(self) -> list[PluginRecord]:
        """List every record, by kind and name."""
        ...


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Tell plugins the settings of the server that concern them: a service.

    `keepalive_interval` is in seconds. `schema_error_status` maps a route family
    (`openai`, `responses`, `native`) to the status of a body that breaks its schema.
    """

    version: str
    host: str
    port: int
    data_dir: Path
    api_keys: tuple[str, ...] = ()
    keepalive_interval: float = 15.0
    default_device: str = "CPU"
    schema_error_status: dict[str, int] = {}
    started_at: float = 0.0
