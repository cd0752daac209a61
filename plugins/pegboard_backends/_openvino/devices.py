"""Device expressions: their grammar, and what must be true of a device to be used.

`CPU`, `GPU`, `NPU`, with an index where there are several; `AUTO` alone or with a list;
`MULTI:` and `HETERO:` with a list. Pure: discovery is elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec
from pegboard_contracts.errors import ApiError, invalid_request

EXAMPLES = (
    "CPU",
    "GPU",
    "GPU.0",
    "NPU",
    "AUTO",
    "AUTO:NPU,GPU,CPU",
    "HETERO:GPU,CPU",
    "MULTI:GPU,CPU",
)
"""Expressions that are understood, for messages and for `GET /v1/devices`."""

_PHYSICAL = re.compile(r"(CPU|GPU|NPU)(\.\d+)?")
_META = ("AUTO", "MULTI", "HETERO")
_MOST_SHOWN = 60


class DeviceExpression(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a parsed expression: `meta` is empty for one device, `devices` for plain `AUTO`."""

    meta: str
    devices: tuple[str, ...]

    @property
    def text(self) -> str:
        """Write it the way OpenVINO reads it."""
        listed = ",".join(self.devices)
        return ":".join(part for part in (self.meta, listed) if part)

    @property
    def families(self) -> frozenset[str]:
        """Name the kinds of devices that it lists."""
        return frozenset(family_of(device) for device in self.devices)


def family_of(device: str) -> str:
    """Return a device's name without its index."""
    return device.partition(".")[0]


def parse_device(expression: str) -> DeviceExpression:
    """Parse an expression; case does not matter, nor do blanks around names.

    Raises `ApiError` 400 `invalid_device` that shows examples.
    """
    text = re.sub(r"\s*([:,])\s*", r"\1", expression.strip()).upper()
    meta, colon, listed = text.partition(":")
    if not colon:
        if text == "AUTO":
            return DeviceExpression(meta="AUTO", devices=())
        meta, listed = "", text
    elif meta not in _META:
        raise _invalid(f"'{meta[:_MOST_SHOWN]}:' is no way to combine devices")
    devices = tuple(listed.split(",")) if meta else (listed,)
    for device in devices:
        if not _PHYSICAL.fullmatch(device):
            raise _invalid("it names something that is no device" if listed else "it is empty")
    if len(set(devices)) != len(devices):
        raise _invalid("it names a device twice")
    return DeviceExpression(meta=meta, devices=devices)


def _invalid(reason: str) -> ApiError:
    examples = ", ".join(EXAMPLES)
    message = f"The device expression is not understood: {reason}. Examples: {examples}."
    return invalid_request(message, param="device", code="invalid_device")


def check_available(expression: DeviceExpression, available: Sequence[str]) -> None:
    """Raise 400 `device_not_available` for a device that is not among the available ones."""
    missing = [device for device in expression.devices if not _matches(device, available)]
    if missing:
        there = ", ".join(available) or "none"
        message = (
            f"{' and '.join(missing)} cannot be used on this machine; OpenVINO finds: {there}. "
            "`pegboard devices` tells why."
        )
        raise invalid_request(message, param="device", code="device_not_available")


def _matches(device: str, available: Sequence[str]) -> bool:
    if "." in device:
        # One GPU alone has no index in OpenVINO's list, and answers to index 0.
        return device in available or (device.endswith(".0") and family_of(device) in available)
    return any(family_of(one) == device for one in available)


def suggestions(available: Iterable[str]) -> list[str]:
    """Return the expressions worth trying on a machine, the plainest first; no promise of speed."""
    there = set(map(family_of, available))
    families = [name for name in ("NPU", "GPU", "CPU") if name in there]
    found: list[str] = [*reversed(families), "AUTO"] if families else []
    if len(families) > 1:
        listed = ",".join(families)
        found += [f"AUTO:{listed}", f"HETERO:{listed}"]
        if "GPU" in families:
            found.append("MULTI:GPU,CPU")
    return found
