"""The devices of all active backends, as one list."""

from __future__ import annotations

import asyncio
import logging

from pegboard_contracts.backend import Device, DeviceReport

from pegboard_kernel.board import Board

logger = logging.getLogger(__name__)


class BoardDevices:
    """Ask every backend: implements `DeviceDirectory`."""

    def __init__(self, board: Board) -> None:
        """Keep the backends."""
        self._backends = tuple(board.backends.values())

    async def report(self, *, refresh: bool = False) -> DeviceReport:
        """Tell what is there; see `DeviceDirectory.report`."""
        return await asyncio.to_thread(self.look, refresh=refresh)

    def look(self, *, refresh: bool = False) -> DeviceReport:
        """Ask the backends one after the other; may take seconds. Any thread."""
        devices: dict[str, Device] = {}
        expressions: dict[str, None] = {}
        examples: dict[str, None] = {}
        for backend in self._backends:
            try:
                found = backend.devices(refresh=refresh)
                suggested = backend.device_suggestions()
            except Exception:
                logger.exception("the backend '%s' cannot list its devices", backend.name)
                continue
            # Several plugins may list a device; once is looked at again.
            refresh = refresh and not found
            for device in found:
                devices.setdefault(device.name, device)
            expressions.update(dict.fromkeys(suggested))
            examples.update(dict.fromkeys(backend.device_examples))
        return DeviceReport(
            devices=list(devices.values()), suggestions=list(expressions), examples=list(examples)
        )
