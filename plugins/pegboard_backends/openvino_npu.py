"""NPUs through OpenVINO GenAI: one request at a time, prompts and answers of fixed lengths.

Its logic is tested against a fake pipeline and on the CPU; no NPU has been seen by these
tests.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pegboard_contracts.backend import EngineDescription, EngineOrder
from pegboard_contracts.engine import Engine
from pegboard_contracts.errors import invalid_request

from pegboard_backends._openvino.completeness import model_source
from pegboard_backends._openvino.devices import DeviceExpression, parse_device
from pegboard_backends._openvino.npu_guard import without_npu
from pegboard_backends._openvino.opening import EngineOptions
from pegboard_backends._openvino.stateful_opening import (
    MOST_DEFAULT_CONTEXT,
    open_stateful_engine,
)
from pegboard_backends._openvino.text_backend import TextBackend


class OpenVinoNpu(TextBackend):
    """Serve text models in OpenVINO IR on the NPU.

    Weights that are known to end the process there are refused when the engine is described.
    """

    summary = "Text models on Intel NPUs through OpenVINO GenAI (not yet seen on hardware)"
    families = ("NPU",)
    small_cache = False
    most_default_context = MOST_DEFAULT_CONTEXT

    def defaults(self, expression: DeviceExpression) -> dict[str, Any]:
        """Leave precisions to the device."""
        del expression
        return {"own_precision": True}

    def describe_engine(self, order: EngineOrder) -> EngineDescription:
        """Check the model's files and weights and describe the engine."""
        if not model_source(order.source).is_dir():
            message = "The NPU takes models in OpenVINO IR only; convert this one first."
            raise invalid_request(message, param="device", code="device_not_served")
        described = super().describe_engine(order)
        without_npu(parse_device(order.device), order.source)
        return described

    def open_engine(self, options: dict[str, Any]) -> Engine:
        """Open the stateful pipeline."""
        return open_stateful_engine(msgspec.convert(options, EngineOptions))


plugin = OpenVinoNpu
