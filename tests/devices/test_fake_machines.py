"""Device logic on machines that are not here: no evidence about hardware."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pegboard_backends._openvino.core import DeviceCore
from pegboard_backends._openvino.devices import parse_device
from pegboard_backends._openvino.model_files import ModelFiles
from pegboard_backends._openvino.opening import (
    EngineOptions,
    device_properties,
    engine_properties,
)
from pegboard_backends.openvino_auto import plugin as auto_plugin
from pegboard_backends.openvino_cpu import plugin as cpu_plugin
from pegboard_backends.openvino_gpu import plugin as gpu_plugin
from pegboard_backends.openvino_npu import plugin as npu_plugin
from pegboard_contracts.backend import Backend
from pegboard_contracts.errors import ApiError
from pegboard_contracts.generation import Sampling

from tests.devices.conftest import CPU, GPU, NPU, Machine

pytestmark = pytest.mark.simulated

FULL: Machine = {"CPU": CPU, "GPU.0": GPU, "GPU.1": GPU, "NPU": NPU}


def test_usable_devices_are_described(machine: Callable[[Machine], None]) -> None:
    machine(FULL)
    found = {device.name: device for device in DeviceCore().describe()}
    assert list(found) == list(FULL)
    assert all(device.usable and device.problem is None for device in found.values())
    assert found["GPU.1"].full_name == "A GPU"
    assert found["GPU.1"].properties == {
        "GPU_DEVICE_TOTAL_MEM_SIZE": 8 << 30,
        "DEVICE_ARCHITECTURE": "x",
    }
    assert found["NPU"].properties == {"NPU_DRIVER_VERSION": 1234}


def test_missing_devices_say_why_without_paths(machine: Callable[[Machine], None]) -> None:
    machine({"CPU": CPU})
    found = {device.name: device for device in DeviceCore().describe()}
    assert not found["GPU"].usable
    problem = found["GPU"].problem
    assert problem == "Cannot load library libGPU.so: no such file"


@pytest.mark.parametrize(
    ("expression", "properties", "fault"),
    [
        ("GPU.0", {"NUM_STREAMS": 2, "CACHE_DIR": "x"}, None),
        ("GPU.0", {"NONSENSE": 1}, "GPU.0 has no property 'NONSENSE'"),
        ("GPU.0", {"FULL_DEVICE_NAME": 1}, "can only be read"),
        ("AUTO:GPU.0,CPU", {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}, None),
        ("AUTO", {"NUM_STREAMS": 1}, None),
        ("AUTO:GPU.0,CPU", {"DEVICE_PROPERTIES": {"GPU.0": {"NUM_STREAMS": 1}}}, None),
        ("AUTO:CPU", {"DEVICE_PROPERTIES": {"CPU": {"X": 1}}}, "CPU has no property 'X'"),
        ("NPU", {"NPUW_ANYTHING": "YES", "NPU_TURBO": True}, None),
        ("CPU", {"NPUW_ANYTHING": "YES"}, "CPU has no property 'NPUW_ANYTHING'"),
    ],
)
def test_properties_are_checked_before_a_model_is_compiled(
    machine: Callable[[Machine], None],
    expression: str,
    properties: dict[str, Any],
    fault: str | None,
) -> None:
    machine(FULL)
    core = DeviceCore()
    if fault is None:
        core.check_properties(parse_device(expression), properties)
        return
    with pytest.raises(ApiError) as caught:
        core.check_properties(parse_device(expression), properties)
    assert (caught.value.status, caught.value.code) == (400, "unknown_property")
    assert fault in caught.value.message
    assert "NUM_STREAMS" in caught.value.message


@pytest.mark.parametrize(
    ("device", "given", "expected"),
    [
        ("CPU", {}, {"INFERENCE_PRECISION_HINT": "f32"}),
        ("GPU.0", {}, {}),
        (
            "GPU.0",
            {"precision_hint": "f16", "kv_cache_precision": "u8", "streams": 2},
            {"INFERENCE_PRECISION_HINT": "f16", "KV_CACHE_PRECISION": "u8", "NUM_STREAMS": 2},
        ),
    ],
)
def test_precisions_are_the_gpus_own_unless_hints_are_given(
    device: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    files = ModelFiles(
        folder=Path(), context_tokens=None, sampling=Sampling(), end_tokens=(), compressed=True
    )
    expression = parse_device(device)
    own = gpu_plugin().defaults(expression) if device.startswith("GPU") else {}
    options = EngineOptions(source="", cache_dir="", device=device, **own, **given)
    assert engine_properties(files, options, expression) == expected


def test_properties_belong_to_devices() -> None:
    options = EngineOptions(
        source="",
        cache_dir="",
        device="",
        properties={"A": 1},
        device_properties={"gpu": {"B": 2}, "GPU.1": {"B": 3}, "CPU": {"C": 4}},
    )
    chosen = {
        text: device_properties(options, parse_device(text))
        for text in ("GPU.0", "GPU.1", "NPU", "AUTO:GPU.1,CPU", "AUTO")
    }
    assert chosen == {
        "GPU.0": {"A": 1, "B": 2},
        "GPU.1": {"A": 1, "B": 3},
        "NPU": {"A": 1},
        "AUTO:GPU.1,CPU": {"A": 1, "DEVICE_PROPERTIES": {"GPU.1": {"B": 3}, "CPU": {"C": 4}}},
        "AUTO": {
            "A": 1,
            "DEVICE_PROPERTIES": {"GPU": {"B": 2}, "GPU.1": {"B": 3}, "CPU": {"C": 4}},
        },
    }


@pytest.mark.parametrize(
    ("device", "served_by"),
    [
        ("CPU", "OpenVinoCpu"),
        ("cpu", "OpenVinoCpu"),
        ("GPU", "OpenVinoGpu"),
        ("gpu.1", "OpenVinoGpu"),
        ("NPU", "OpenVinoNpu"),
        ("AUTO", "OpenVinoAuto"),
        ("HETERO:GPU,CPU", "OpenVinoAuto"),
        ("MULTI:GPU,CPU", "OpenVinoAuto"),
        ("XYZ", "OpenVinoAuto"),
        ("", "OpenVinoAuto"),
    ],
)
def test_every_expression_has_one_plugin(device: str, served_by: str) -> None:
    plugins: list[type[Backend]] = [cpu_plugin, gpu_plugin, npu_plugin, auto_plugin]
    serving = [one.__name__ for one in plugins if one().serves("openvino-genai", device)]
    assert serving == [served_by]
    assert not any(one().serves("other", device) for one in plugins)
