"""The one door to OpenVINO: imported when a function runs, never before.

Its stubs are partial, so everything from it is `Any`, and what crosses into our types is
converted where it enters. Tests of device logic replace these two functions.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def openvino() -> Any:  # noqa: ANN401 - a module without complete types
    """Import OpenVINO; costs a quarter of a second the first time."""
    return import_module("openvino")


def genai() -> Any:  # noqa: ANN401 - a module without complete types
    """Import OpenVINO GenAI; costs a third of a second the first time."""
    return import_module("openvino_genai")


def id_tensor(token_ids: list[int]) -> Any:  # noqa: ANN401 - OpenVINO's
    """Make the tensor of one prompt: one row of 64-bit integers, the only form that works."""
    import numpy as np  # noqa: PLC0415 - comes with OpenVINO

    return openvino().Tensor(np.array([token_ids], dtype=np.int64))
