"""Idle models: unloaded after a while, never in the middle of anything."""

from __future__ import annotations

import asyncio
import logging
import time

from pegboard_kernel.models.directory import Directory
from pegboard_kernel.models.loads import Loads

logger = logging.getLogger(__name__)

_SHORTEST_PAUSE = 0.05


class IdleWatch:
    """Unload what nobody used for some seconds; pinned models stay. Event loop only."""

    def __init__(self, directory: Directory, loads: Loads, seconds: float | None) -> None:
        """Keep how long is long enough; nothing is no limit."""
        self._directory = directory
        self._loads = loads
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch."""
        if self._seconds is not None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch(self._seconds))

    def stop(self) -> None:
        """Watch no more."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self, seconds: float) -> None:
        while True:
            now = time.monotonic()
            pause = seconds
            for record in self._directory.records():
                since = record.idle_since
                if since is None:
                    continue
                if since + seconds <= now:
                    logger.info("'%s' was not used for %g s", record.entry.id, seconds)
                    self._loads.begin_unload(record)
                else:
                    pause = min(pause, since + seconds - now)
            await asyncio.sleep(max(pause, _SHORTEST_PAUSE))
