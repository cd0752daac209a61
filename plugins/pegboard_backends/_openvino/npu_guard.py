"""Which compressed weights the NPU may be given: others can end the process, so they are refused.

Pure Python: reads what the converter wrote at the end of the model's description.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

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


def npu_problem(folder: Path, *, compressed: bool) -> str | None:
    """Return why the weights of a folder must not reach the NPU, or nothing.

    Symmetric INT4 with ratio 1.0 and groups of 128 or whole channels is known to work, and
    16-bit weights are.
    """
    if not compressed:
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
