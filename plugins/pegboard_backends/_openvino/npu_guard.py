"""Which compressed weights the NPU may be given: others can end the process, so they are refused.

Pure Python: reads what the converter wrote at the end of the model's description.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

import msgspec
from pegboard_contracts.errors import invalid_request

from pegboard_backends._openvino.devices import DeviceExpression, family_of
from pegboard_backends._openvino.model_files import has_compressed_weights

logger = logging.getLogger(__name__)

_FIELD = re.compile(rb'<(mode|ratio|group_size) value="([^"]*)"')
_TAIL_BYTES = 1 << 16
_GROUP_SIZES = (-1, 128)


class WeightProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Say how the converter compressed a model's weights."""

    mode: str
    ratio: float
    group_size: int


def read_weight_profile(folder: Path) -> WeightProfile | None:
    """Return the profile that is recorded in a folder of IR, or nothing."""
    data = (folder / "openvino_model.xml").read_bytes()
    at = data.rfind(b"<weight_compression>")
    if at < 0:
        return None
    found = {key.decode(): value.decode() for key, value in _FIELD.findall(data[at:][:_TAIL_BYTES])}
    try:
        return WeightProfile(
            mode=found["mode"].lower(),
            ratio=float(found.get("ratio", "1")),
            group_size=int(found.get("group_size", "-1")),
        )
    except (KeyError, ValueError):
        return None


def npu_problem(folder: Path) -> str | None:
    """Return why the weights of a folder must not reach the NPU, or nothing.

    Symmetric INT4 with ratio 1.0 and groups of 128 or whole channels is known to work, and
    16-bit weights are.
    """
    if not has_compressed_weights(folder):
        return None
    profile = read_weight_profile(folder)
    if profile is None:
        return "nothing records how its weights were compressed"
    if profile.mode != "int4_sym":
        return f"its weights are {profile.mode}, not int4_sym"
    if profile.ratio != 1.0:
        return f"only a share of {profile.ratio:g} of its weights is INT4"
    if profile.group_size not in _GROUP_SIZES:
        return f"its INT4 weights have groups of {profile.group_size}"
    return None


def without_npu(expression: DeviceExpression, folder: Path) -> DeviceExpression:
    """Take the NPU out of a list of devices when the weights could end the process there.

    Raises `ApiError` 400 `npu_weights_refused` when nothing is left.
    """
    problem = npu_problem(folder) if "NPU" in expression.families else None
    if problem is None:
        return expression
    left = tuple(device for device in expression.devices if family_of(device) != "NPU")
    if not left:
        message = (
            f"This model may not be loaded on the NPU: {problem}. Convert it again with "
            "--weight-format int4 --sym --ratio 1.0 --group-size 128, or fp16, or name another "
            "device."
        )
        raise invalid_request(message, param="device", code="npu_weights_refused")
    logger.warning("the NPU is left out of %s: %s", expression.text, problem)
    return DeviceExpression(meta=expression.meta, devices=left)
