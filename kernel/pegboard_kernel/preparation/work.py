"""One piece of work in a process of its own, watched, and gone with all it started."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable

import psutil
from pegboard_contracts.converters import Report as WorkReport
from pegboard_contracts.errors import ApiError, error_from_wire

from pegboard_kernel.engines.child_process import ChildProcess
from pegboard_kernel.engines.frames import Assignment, Done, Lost, Report, Working
from pegboard_kernel.models.operations import unbroken

logger = logging.getLogger(__name__)

_POLITE_SECONDS = 5.0
_KILL_SECONDS = 5.0


class Watch:
    """Know since when a preparation runs and says nothing, in seconds of the loop's clock.

    `silent` is how long it may say nothing, `total` how long it may take in all.
    """

    def __init__(self, *, silent: float, total: float) -> None:
        """Begin now."""
        self._clock = asyncio.get_running_loop().time
        self._silent, self._total = silent, total
        self._begun = self._last = self._clock()

    def sign(self) -> None:
        """Take note of a sign of life."""
        self._last = self._clock()

    def left(self) -> float:
        """Return the seconds until `check` raises, if nothing is said."""
        now = self._clock()
        return max(0.0, min(self._last + self._silent, self._begun + self._total) - now)

    def check(self, work: str) -> None:
        """Raise 500 `preparation_timeout` or `preparation_stalled` when the time is over."""
        now = self._clock()
        kept = " What was fetched is kept; a new try goes on from there." if work == "fetch" else ""
        what = "download" if work == "fetch" else "conversion"
        if now >= self._begun + self._total:
            message = (
                f"The preparation of the model took longer than {self._total:g} seconds and was "
                f"stopped in the {what}.{kept} The setting conversion_timeout allows more."
            )
            raise ApiError(500, message, code="preparation_timeout")
        if now >= self._last + self._silent:
            message = (
                f"The {what} gave no sign of life for {self._silent:g} seconds and was stopped."
                f"{kept} The setting conversion_inactivity_timeout allows more."
            )
            raise ApiError(500, message, code="preparation_stalled")


class Work:
    """Run one `Assignment` in a child. Event loop only."""

    def __init__(self, assignment: Assignment, watch: Watch) -> None:
        """Prepare; nothing is started."""
        self._assignment = assignment
        self._watch = watch
        self._child = ChildProcess("operation", self._reported, self._gone)
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._path: str | None = None
        self._fault: ApiError | None = None
        self._tell: Callable[[WorkReport], None] = lambda _: None

    @property
    def pid(self) -> int:
        """Return the process id of the child, whose descendants are all of the work."""
        return self._child.pid

    async def start(self) -> None:
        """Start the process. Raises `ApiError` 503; when cancelled, nothing is left."""
        starting = asyncio.ensure_future(self._child.start())
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait((starting,))
            await self.close()
            raise
        self._child.send(self._assignment)

    async def run(self, tell: Callable[[WorkReport], None]) -> str:
        """Wait for the end, hand every report to `tell`, and return where the files are.

        Raises the `ApiError` of the work, 500 `preparation_stalled`, `preparation_timeout` or
        `preparation_failed`. Whatever happens, also when the caller is cancelled, no process
        of the work is left.
        """
        self._tell = tell
        self._watch.sign()
        try:
            while not self._ended.done():
                await asyncio.wait((self._ended,), timeout=max(0.01, self._watch.left()))
                if not self._ended.done():
                    self._watch.check(self._assignment.work)
        finally:
            self._tell = lambda _: None
            await unbroken(self.close())
        if self._path is not None and self._fault is None:
            return self._path
        raise self._fault or _broken(self._assignment.work)

    async def close(self) -> None:
        """End every process of the work; returns when they are gone, or after ten seconds."""
        if self._child.pid == 0:
            return
        if self._child.gone:
            self._end_group()
            return
        if sys.platform.startswith("linux"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, signal.SIGTERM)
            await asyncio.wait((self._ended,), timeout=_POLITE_SECONDS)
        if not self._child.gone:
            await asyncio.to_thread(end_tree, self._child.pid)
            self._child.kill()
            await asyncio.wait((self._ended,), timeout=_KILL_SECONDS)

    def _end_group(self) -> None:
        """Kill what a supervisor left that was killed itself, but what left its group."""
        if sys.platform.startswith("linux") and (self._child.exit_code or 0) < 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def _reported(self, report: Report) -> None:
        self._watch.sign()
        match report:
            case Working(told):
                self._tell(told)
            case Done(path):
                self._path = path
            case Lost(error):
                self._fault = error_from_wire(error)
            case _:
                logger.error("an operation's process says what it has no business to say")

    def _gone(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


def end_tree(pid: int) -> None:
    """Kill a process and all that came of it; blocking, returns when they are gone."""
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(pid)
        tree = [*first.children(recursive=True), first]
        for process in tree:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(tree, timeout=_KILL_SECONDS)


def _broken(work: str) -> ApiError:
    what = "download" if work == "fetch" else "conversion"
    message = (
        f"The process of the {what} was ended from outside, perhaps because the machine had too "
        "little memory. See the server's log, and try again."
    )
    return ApiError(500, message, code="preparation_failed")
