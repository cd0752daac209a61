"""OpenVINO's Core, as far as devices are concerned: the seam that tests put a fake behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pegboard_contracts.backend import Device
from pegboard_contracts.errors import invalid_request

from pegboard_backends._openvino import library
from pegboard_backends._openvino.devices import DeviceExpression, family_of

FAMILIES = ("CPU", "GPU", "NPU")
_SHOWN = (
    "DEVICE_ARCHITECTURE",
    "DEVICE_TYPE",
    "OPTIMIZATION_CAPABILITIES",
    "GPU_DEVICE_TOTAL_MEM_SIZE",
    "GPU_EXECUTION_UNITS_COUNT",
    "NPU_DRIVER_VERSION",
    "NPU_DEVICE_TOTAL_MEM_SIZE",
    "DRIVER_VERSION",
    "RANGE_FOR_STREAMS",
)
_OF_GENAI = frozenset(
    {
        "ATTENTION_BACKEND",
        "CACHE_DIR",
        "GENERATE_HINT",
        "MAX_PROMPT_LEN",
        "MIN_RESPONSE_LEN",
        "PREFILL_HINT",
    }
)
"""Properties that GenAI takes for itself before OpenVINO sees the rest."""

_NESTED = "DEVICE_PROPERTIES"
_MOST_REASON = 300


class DeviceCore:
    """Ask OpenVINO about devices."""

    def __init__(self) -> None:
        """Open a Core; costs a tenth of a second, more with drivers."""
        self._core: Any = library.openvino().Core()

    def available(self) -> list[str]:
        """Return the names of the devices that OpenVINO can use."""
        return [str(name) for name in self._core.available_devices]

    def describe(self) -> list[Device]:
        """Describe every usable device, and why the other families are not usable."""
        available = self.available()
        found = [self._describe(name) for name in available]
        present = {family_of(name) for name in available}
        found += [
            Device(name=family, usable=False, problem=self._problem(family))
            for family in FAMILIES
            if family not in present
        ]
        return found

    def _describe(self, name: str) -> Device:
        told = {key: self._property(name, key) for key in self._supported(name)}
        return Device(
            name=name,
            full_name=str(told.get("FULL_DEVICE_NAME") or name).strip(),
            properties={key: told[key] for key in _SHOWN if told.get(key) is not None},
        )

    def _property(self, device: str, key: str) -> Any:  # noqa: ANN401 - plain data
        if key not in (*_SHOWN, "FULL_DEVICE_NAME"):
            return None
        try:
            return _plain(self._core.get_property(device, key))
        except RuntimeError:
            return None

    def _problem(self, family: str) -> str:
        try:
            self._core.get_property(family, "AVAILABLE_DEVICES")
        except RuntimeError as error:
            return _reason(str(error))
        return f"OpenVINO's {family} plugin finds no device; is its driver installed?"

    def _supported(self, device: str) -> Mapping[str, str]:
        """Return the names of a device's properties, each with how it may be used."""
        try:
            supported = self._core.get_property(device, "SUPPORTED_PROPERTIES")
        except RuntimeError:
            return {}
        return {str(key): str(use) for key, use in dict(supported).items()}

    def check_properties(self, expression: DeviceExpression, properties: Mapping[str, Any]) -> None:
        """Raise 400 `unknown_property` for a property that the device does not take."""
        takers = (
            [expression.meta, *expression.devices] if expression.meta else [*expression.devices]
        )
        if expression.meta and not expression.devices:
            takers += self.available()
        self._check(takers, {key: properties[key] for key in properties if key != _NESTED})
        nested: Any = properties.get(_NESTED, {})
        for device, values in dict(nested).items():
            self._check([str(device)], values)

    def _check(self, takers: list[str], properties: Mapping[str, Any]) -> None:
        supported: dict[str, str] = {}
        for taker in reversed(takers):
            supported |= self._supported(taker)
        device = takers[0]
        for key in properties:
            if key in _OF_GENAI or ("NPU" in takers and key.startswith("NPU")):
                continue
            if key not in supported:
                problem = f"{device} has no property '{key[:80]}'"
            elif supported[key] == "RO":
                problem = f"the property '{key[:80]}' of {device} can only be read"
            else:
                continue
            changeable = ", ".join(sorted(name for name in supported if supported[name] == "RW"))
            message = f"This model's properties cannot be set: {problem}. It has: {changeable}."
            raise invalid_request(message, param="properties", code="unknown_property")

    def execution_devices(self, expression: DeviceExpression) -> str:
        """Return where OpenVINO runs a small model that is compiled for the expression.

        GenAI shows no compiled model of its pipelines; this is the same choice made once more.
        """
        openvino = library.openvino()
        ops = openvino.opset8
        parameter = ops.parameter([1, 8], openvino.Type.f32, name="x")
        model = openvino.Model([ops.relu(parameter)], [parameter], "probe")
        try:
            compiled = self._core.compile_model(model, expression.text)
            devices = compiled.get_property("EXECUTION_DEVICES")
        except RuntimeError:
            return expression.text
        return ", ".join(str(name).strip("()") for name in devices)


def _plain(value: Any) -> Any:  # noqa: ANN401 - OpenVINO's
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [str(member) for member in cast("Iterable[object]", value)]
    return str(value)


def _reason(text: str) -> str:
    """Return the line of an error that tells most, without paths."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Exception from", "Check '"))]
    words = (telling or lines or ["unknown"])[-1].split()
    return " ".join(word.rpartition("/")[2] or word for word in words)[:_MOST_REASON]
