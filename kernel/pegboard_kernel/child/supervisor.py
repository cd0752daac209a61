"""The supervisor of an operation child: whatever the work starts ends with it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_SECONDS = 10.0
_PAUSE = 0.02


def supervised(server: int, pipes: Sequence[int]) -> int:
    """Split the process: the new one returns and does the work, this one ends it.

    On SIGTERM, when the server dies, and when the work itself ends, every process that came
    of the work is killed, also one that left its group or whose parent is gone. `pipes` are
    the descriptors that only the work needs. Returns the process id that the work has for a
    parent. Elsewhere than on Linux nothing is split: the server ends the tree.
    """
    if not sys.platform.startswith("linux"):
        return server
    import ctypes  # noqa: PLC0415 - only here

    os.setsid()
    waited = {signal.SIGTERM, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    supervisor = os.getpid()
    # Orphans of the work become children of this process, where they are found.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    worker = os.fork()
    if worker == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return supervisor
    for name in ("SIGINT", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    for descriptor in pipes:
        os.close(descriptor)
    if os.getppid() != server:
        _end_everything()
        os._exit(1)
    return _watch(worker, waited)


def _watch(worker: int, waited: set[signal.Signals]) -> NoReturn:
    while True:
        status: int | None = None
        if signal.sigwait(waited) == signal.SIGCHLD:
            status = _reap(worker)
            if status is None:
                continue
        _end_everything()
        if status is None or status < 0:
            os._exit(1)
        os._exit(status)


def _reap(worker: int) -> int | None:
    """Take note of every process that ended; return how the worker did, if it is among them."""
    found: int | None = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            if ended[0] == worker:
                found = os.waitstatus_to_exitcode(ended[1])
    return found


def _end_everything() -> None:
    import psutil  # noqa: PLC0415 - only at the end

    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        left = psutil.Process().children(recursive=True)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        _reap(0)
        if not left:
            return
        time.sleep(_PAUSE)
