"""Models that requests bring: each is loaded once, in the place of the one used longest ago."""

from __future__ import annotations

import asyncio
import logging
import time

from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import ModelState

from pegboard_kernel.models.directory import Directory, not_serving
from pegboard_kernel.models.loads import Loads
from pegboard_kernel.models.operations import Operations, settle, stopping
from pegboard_kernel.models.record import AT_REST, ModelRecord

logger = logging.getLogger(__name__)


class Arrivals:
    """Load what requests name, and unload what nobody uses to make room. Event loop only."""

    def __init__(self, directory: Directory, operations: Operations, loads: Loads) -> None:
        """Start with nobody on the way."""
        self._directory = directory
        self._operations = operations
        self._loads = loads
        self._coming: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Lock()

    async def arrive(self, record: ModelRecord) -> None:
        """Return when the model is loaded; the load goes on when the caller leaves.

        Raises `ApiError` that says why it is not, for everyone who waits.
        """
        model = record.entry.id
        task = self._coming.get(model)
        if task is None:
            task = self._operations.beside(self._bring(record))
            self._coming[model] = task
            task.add_done_callback(lambda done: self._came(model, done))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._operations.closing:
                raise stopping() from None
            raise

    def _came(self, model: str, task: asyncio.Task[None]) -> None:
        del self._coming[model]
        if not task.cancelled():
            # The record tells of it, also when nobody waits any more.
            task.exception()

    async def _bring(self, record: ModelRecord) -> None:
        async with self._room:
            if record.state in AT_REST:
                # A conversion is told as done a moment before its work is.
                await settle(record)
            if record.state in AT_REST and record.found.downloaded:
                await self._make_room(record)
                self._loads.begin(record)
        if record.state is ModelState.LOADING:
            await settle(record)
        if record.state is not ModelState.LOADED:
            raise record.fault or not_serving(record)

    async def _make_room(self, record: ModelRecord) -> None:
        while True:
            try:
                self._loads.check_room(record, force=False)
            except ApiError:
                victim = self._least_used()
                if victim is None:
                    raise
            else:
                return
            logger.info("'%s' makes room for '%s'", victim.entry.id, record.entry.id)
            self._loads.begin_unload(victim)
            await settle(victim)

    def _least_used(self) -> ModelRecord | None:
        """Return the model that nobody uses and that was used longest ago."""
        now = time.monotonic()
        idle = [
            (since, record.entry.id, record)
            for record in self._directory.records()
            if (since := record.idle_since) is not None and since <= now
        ]
        return min(idle)[2] if idle else None
