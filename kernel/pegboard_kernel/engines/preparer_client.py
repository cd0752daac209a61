"""The preparer child: one call at a time, each with a limit of processor time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import Any

import msgspec
import psutil
from pegboard_contracts.conversation import Conversation
from pegboard_contracts.engine import ConstraintCost
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.generation import Constraint

from pegboard_kernel.engines.child_process import ChildProcess
from pegboard_kernel.engines.frames import Opening, Prepared, PreparerInfo, Report

logger = logging.getLogger(__name__)

_WALL_FACTOR = 6
"""How many times its processor time a call may take on a busy machine."""

_QUICK_SECONDS = 0.05
"""What a call may take before its processor time is looked at, which costs more than most."""


class CallLimit(msgspec.Struct, frozen=True):
    """Bound a call: seconds of processor time, and the error of one that takes more."""

    seconds: float
    error: ApiError


class _Job:
    """Be a call that waits for its turn."""

    def __init__(self, name: str, arguments: dict[str, Any], limit: CallLimit) -> None:
        self.name = name
        self.arguments = arguments
        self.limit = limit
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class PreparerClient:
    """Speak to the preparer process, and to the next one when it had to be killed.

    A prompt that takes more than `time_limit` seconds of processor time is refused with 400
    `template_timeout`, other calls have limits of their own; calls behind one that was
    stopped are served by a new process.
    """

    def __init__(self, opening: Opening, *, time_limit: float) -> None:
        """Prepare; nothing is started."""
        self._opening = opening
        self._prompt_limit = CallLimit(time_limit, _too_slow(time_limit))
        self._child: ChildProcess | None = None
        self._jobs: deque[_Job] = deque()
        self._job_there = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Count the calls that were not answered yet."""
        return len(self._jobs)

    @property
    def pid(self) -> int:
        """Return the process id of the current process, or 0."""
        return 0 if self._child is None else self._child.pid

    async def start(self) -> None:
        """Start the process, so that it imports what it needs; opens nothing yet."""
        self._child = await self._started_child()

    async def _started_child(self) -> ChildProcess:
        child = ChildProcess("preparer", _ignore, _nothing)
        await child.start()
        child.send(self._opening)
        return child

    async def open(self) -> PreparerInfo:
        """Open the tokenizer, after the engine was opened; calls are served from here on.

        Raises `ApiError` when it cannot be opened.
        """
        if self._child is None:
            await self.start()
        child = self._child
        if child is None:
            raise RuntimeError("a started preparer has a process")
        info = msgspec.convert(await child.call("open"), PreparerInfo)
        self._worker = asyncio.get_running_loop().create_task(self._work())
        return info

    async def prepare_conversation(self, conversation: Conversation) -> Prepared:
        """Render and tokenize. Raises `ApiError` 400 for what the template refuses."""
        return msgspec.convert(await self.call("prepare", {"conversation": conversation}), Prepared)

    async def prepare_text(self, text: str, **how: Any) -> Prepared:  # noqa: ANN401 - plain data
        """Tokenize a raw prompt; `how` has `bare` and `suffix`, see the child's `prepare`."""
        return msgspec.convert(await self.call("prepare", {"text": text, **how}), Prepared)

    async def prepare_ids(self, ids: list[int], **how: Any) -> Prepared:  # noqa: ANN401 - the same
        """Take a tokenized prompt and find its text."""
        return msgspec.convert(await self.call("prepare", {"ids": ids, **how}), Prepared)

    async def encode(self, text: str) -> list[int]:
        """Tokenize text that goes on where a prompt ended."""
        return msgspec.convert(await self.call("encode", {"text": text}), list[int])

    async def check(
        self, constraint: Constraint, step_limit: float, limit: CallLimit
    ) -> ConstraintCost:
        """Compile and try a constraint; see `PromptTokenizer.check`."""
        arguments = {"constraint": constraint, "step_limit": step_limit}
        return msgspec.convert(await self.call("check", arguments, limit), ConstraintCost)

    async def problems(self, kind: str, value: str, text: str, limit: CallLimit) -> list[str]:
        """Check a finished answer against the JSON text of what an output format was given."""
        arguments = {"kind": kind, "value": value, "text": text}
        return msgspec.convert(await self.call("problems", arguments, limit), list[str])

    async def call(
        self, name: str, arguments: dict[str, Any], limit: CallLimit | None = None
    ) -> Any:  # noqa: ANN401 - the function's own value
        """Wait for the turn, call a function by name, and return its value."""
        if self._worker is None or self._worker.done():
            raise _unloaded()
        job = _Job(name, arguments, limit or self._prompt_limit)
        self._jobs.append(job)
        self._job_there.set()
        return await job.answer

    async def close(self) -> None:
        """End the process; calls that wait fail."""
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker
        for job in self._jobs:
            if not job.answer.done():
                job.answer.set_exception(_unloaded())
        self._jobs.clear()
        if self._child is not None:
            self._child.kill()
            await self._child.close()

    async def _work(self) -> None:
        while True:
            while self._jobs:
                await self._serve(self._jobs[0])
                self._jobs.popleft()
            self._job_there.clear()
            await self._job_there.wait()

    async def _serve(self, job: _Job) -> None:
        if job.answer.done():
            return
        try:
            value = await self._limited(await self._open_child(), job)
        except ApiError as error:
            if not job.answer.done():
                job.answer.set_exception(error)
        except Exception:
            logger.exception("a call of the preparer fails")
            if not job.answer.done():
                job.answer.set_exception(_broken())
        else:
            if not job.answer.done():
                job.answer.set_result(value)
        if self._child is not None and self._child.gone:
            await self._replace()

    async def _open_child(self) -> ChildProcess:
        if self._child is None or self._child.gone:
            await self._replace()
        if self._child is None:
            raise _broken()
        return self._child

    async def _replace(self) -> None:
        """Start and open another process; what goes wrong is told to the next caller."""
        self._child = None
        try:
            child = await self._started_child()
            await child.call("open")
        except ApiError as error:
            logger.warning("the preparer cannot be opened again: %s", error.message)
            return
        self._child = child

    async def _limited(self, child: ChildProcess, job: _Job) -> Any:  # noqa: ANN401 - the function's own value
        future = child.call(job.name, job.arguments)
        clock = asyncio.get_running_loop().time
        begun, limit = clock(), job.limit.seconds
        await asyncio.wait((future,), timeout=_QUICK_SECONDS)
        used, wait = 0.0 if future.done() else _processor_seconds(child.pid), limit
        while not future.done():
            await asyncio.wait((future,), timeout=wait)
            if future.done():
                break
            rest = limit - (_processor_seconds(child.pid) - used)
            if rest <= 0 or clock() - begun >= limit * _WALL_FACTOR:
                child.kill()
                await child.close()
                future.exception()
                raise job.limit.error
            wait = max(rest, 0.05)
        if child.gone:
            logger.error("the preparer process ended (exit code %s)", child.exit_code)
            future.exception()
            raise _broken()
        return future.result()


def _ignore(report: Report) -> None:
    logger.error("a preparer reports: %s", report)


def _nothing() -> None:
    pass


def _processor_seconds(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _too_slow(limit: float) -> ApiError:
    return invalid_request(
        f"The model's chat template did not finish within {limit:g} s for these messages. Shorten "
        "them, or correct the template.",
        param="messages",
        code="template_timeout",
    )


def _broken() -> ApiError:
    message = "The process that renders prompts ended on this request; see the server's log."
    return ApiError(500, message, code="preparer_crashed")


def _unloaded() -> ApiError:
    message = "The model is being unloaded. Load it and send the request again."
    return ApiError(503, message, code="model_unloaded", retry_after=5)
