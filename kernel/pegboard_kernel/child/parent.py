"""Ending with the server: no child outlives it, whatever the child is doing."""

from __future__ import annotations

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Ask the kernel of the system to kill this process when the server dies.

    Elsewhere than on Linux the end of the command pipe does it, between two steps.
    Signals that a terminal or a service manager sends to the whole group are left to the
    server, which lets running answers finish first.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, signal.SIG_IGN)
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # noqa: PLC0415 - only here

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The server may have died before the request was made.
    if os.getppid() != parent:
        os._exit(1)
