"""Limits on what a template may use, from inside the process that runs it.

They turn a hoarding or looping template into an error of the request or the probe. They
are best effort: memory is bounded on Linux, time in the main thread of a POSIX process.
The parent's limit, which kills the process, holds everywhere.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

if sys.platform == "linux":
    import resource
if sys.platform != "win32":
    import signal

_memory_lock = threading.Lock()


class OutOfTimeError(BaseException):
    """Say that a template used up its time; no `except Exception` on its way catches it."""


@contextmanager
def bounded_memory(memory: int) -> Generator[None]:
    """Make memory beyond `memory` more bytes than now fail with `MemoryError`."""
    if sys.platform != "linux":
        yield
        return
    with _memory_lock:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - every request
            used = int(statm.read().split()[0]) * resource.getpagesize()
        limits = [used + memory]
        limits += [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def bounded_time(seconds: float) -> Generator[None]:
    """Raise `OutOfTimeError` after so many seconds of processor time."""
    main = threading.current_thread() is threading.main_thread()
    if sys.platform == "win32" or not main:
        yield
        return
    previous = signal.signal(signal.SIGPROF, _give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def _give_up(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise OutOfTimeError
