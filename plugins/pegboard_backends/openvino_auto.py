"""OpenVINO chooses or shares devices: AUTO, MULTI and HETERO expressions.

Only AUTO:CPU, HETERO:CPU and MULTI:CPU have been seen running; further devices are tested
against a fake of OpenVINO's Core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pegboard_contracts.backend import Device
from pegboard_contracts.engine import Engine
from pegboard_contracts.errors import ApiError

from pegboard_backends._openvino.devices import EXAMPLES, parse_device, suggestions
from pegboard_backends._openvino.discovery import discover
from pegboard_backends._openvino.opening import EngineOptions
from pegboard_backends._openvino.stateful_opening import open_stateful_engine
from pegboard_backends._openvino.text_backend import TextBackend


class OpenVinoAuto(TextBackend):
    """Serve every expression that is no single device, also those that nobody understands.

    The latter are refused with examples.
    """

    summary = "Text models on AUTO, MULTI and HETERO expressions through OpenVINO GenAI"

    def serves(self, model_backend: str, device: str) -> bool:
        """Serve what is no single device."""
        if model_backend not in self.model_backends:
            return False
        try:
            return bool(parse_device(device).meta)
        except ApiError:
            return True

    device_examples = EXAMPLES

    def device_suggestions(self) -> Sequence[str]:
        """Return single devices and combinations of those that OpenVINO can use."""
        return suggestions(device.name for device in discover() if device.usable)

    def devices(self, *, refresh: bool = False) -> Sequence[Device]:
        """List nothing: single devices belong to the other plugins."""
        del refresh
        return ()

    def open_engine(self, options: dict[str, Any]) -> Engine:
        """Open the engine: with continuous batching, or on MULTI one request at a time.

        The paged cache of continuous batching cannot be shared out among devices.
        """
        wanted = msgspec.convert(options, EngineOptions)
        if parse_device(wanted.device).meta == "MULTI":
            return open_stateful_engine(wanted)
        return super().open_engine(options)


plugin = OpenVinoAuto
