"""Discovery of devices in a process of its own, so that a driver cannot harm the server.

`python -m pegboard_backends._openvino.discovery` prints the devices as JSON.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import msgspec
from pegboard_contracts.backend import Device

from pegboard_backends._openvino.core import FAMILIES, DeviceCore

logger = logging.getLogger(__name__)

_SECONDS = 30.0
_MARK = "pegboard-devices:"

_lock = threading.Lock()
_remembered: list[list[Device]] = []


def discover(*, refresh: bool = False) -> list[Device]:
    """Return what OpenVINO knows about devices; found once, and again when asked to.

    Takes a second the first time. A discovery that fails is told as the problem of every
    family of devices. Any thread.
    """
    with _lock:
        if refresh or not _remembered:
            _remembered[:] = [_ask()]
        return _remembered[0]


def _ask() -> list[Device]:
    command = [sys.executable, "-P", "-m", "pegboard_backends._openvino.discovery"]
    try:
        found = subprocess.run(  # noqa: S603 - our own module
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        line = next(line for line in found.stdout.splitlines() if line.startswith(_MARK))
        return msgspec.json.decode(line.removeprefix(_MARK), type=list[Device])
    except subprocess.TimeoutExpired:
        problem = f"A driver did not answer within {_SECONDS:g} s."
    except subprocess.CalledProcessError as error:
        logger.error("the discovery of devices failed: %s", error.stderr)  # noqa: TRY400 - the message says it all
        problem = "The discovery of devices failed; see the server's log."
    except StopIteration:
        problem = "The discovery of devices told nothing."
    return [Device(name=family, usable=False, problem=problem) for family in FAMILIES]


if __name__ == "__main__":
    print(_MARK + msgspec.json.encode(DeviceCore().describe()).decode())  # noqa: T201 - its answer
