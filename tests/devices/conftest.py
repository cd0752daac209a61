"""A fake of OpenVINO behind the seam: devices that this machine does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from pegboard_backends._openvino import library

Machine = Mapping[str, Mapping[str, Any]]

CPU = {"FULL_DEVICE_NAME": "A processor", "OPTIMIZATION_CAPABILITIES": ["BF16", "INT8"]}
GPU = {
    "FULL_DEVICE_NAME": "A GPU",
    "GPU_DEVICE_TOTAL_MEM_SIZE": 8 << 30,
    "DEVICE_ARCHITECTURE": "x",
}
NPU = {"FULL_DEVICE_NAME": "An NPU", "NPU_DRIVER_VERSION": 1234}
_CHANGEABLE = ("NUM_STREAMS", "INFERENCE_PRECISION_HINT", "PERFORMANCE_HINT")


class FakeCore:
    """Answer as OpenVINO's Core does on a machine with the given devices."""

    machine: ClassVar[Machine] = {"CPU": CPU}

    @property
    def available_devices(self) -> list[str]:
        return list(self.machine)

    def get_property(self, device: str, key: str) -> Any:
        family = device.partition(".")[0]
        if family in ("AUTO", "MULTI", "HETERO"):
            return {"PERFORMANCE_HINT": "RW"} if key == "SUPPORTED_PROPERTIES" else None
        values = self.machine.get(device)
        if values is None:
            raise RuntimeError(
                "Exception from src/inference/src/cpp/core.cpp:124:\n"
                f"Cannot load library /opt/drivers/lib{family}.so: no such file\n"
            )
        if key == "SUPPORTED_PROPERTIES":
            return dict.fromkeys(values, "RO") | dict.fromkeys(_CHANGEABLE, "RW")
        return values[key]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Machine], None]:
    """Put a machine behind the seam."""

    def put(devices: Machine) -> None:
        core = type("Core", (FakeCore,), {"machine": devices})
        monkeypatch.setattr(library, "openvino", lambda: SimpleNamespace(Core=core))

    return put
