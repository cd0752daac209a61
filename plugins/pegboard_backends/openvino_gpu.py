"""GPUs through OpenVINO GenAI. Its logic is tested; no GPU has been seen by these tests."""

from __future__ import annotations

from typing import Any

from pegboard_backends._openvino.devices import DeviceExpression
from pegboard_backends._openvino.text_backend import TextBackend


class OpenVinoGpu(TextBackend):
    """Serve text models on `GPU` and `GPU.0`, `GPU.1`, ... with continuous batching."""

    summary = "Text models on Intel GPUs through OpenVINO GenAI (not yet seen on hardware)"
    families = ("GPU",)
    small_cache = False

    def defaults(self, expression: DeviceExpression) -> dict[str, Any]:
        """Leave precisions to the device's plugin: f16 activations, 8-bit caches where it can."""
        del expression
        return {"own_precision": True}


plugin = OpenVinoGpu
