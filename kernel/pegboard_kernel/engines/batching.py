"""Batches: the inputs of concurrent requests to one encoder, computed together."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from pegboard_contracts.encoding import Encoded, EncoderInput
from pegboard_contracts.errors import ApiError, error_from_wire, server_error

logger = logging.getLogger(__name__)

MAX_BATCH_INPUTS = 64
MAX_BATCH_SIZE = 40_000
"""Characters and tokens of a batch, at most; one input may be more."""

_TURN_INPUTS = 32
_RETRY_AFTER = 2.0

EncodeBatch = Callable[[list[EncoderInput]], Awaitable[list[Encoded]]]


class _Job:
    """Be one request: its inputs, and what came of them so far."""

    def __init__(self, inputs: Sequence[EncoderInput], param: str) -> None:
        self.inputs = inputs
        self.param = param
        self.taken = 0
        self.results: list[Encoded | None] = [None] * len(inputs)
        self.answer: asyncio.Future[list[Encoded]] = asyncio.get_running_loop().create_future()

    @property
    def open(self) -> bool:
        return not self.answer.done()

    def fail(self, error: ApiError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def put(self, index: int, result: Encoded) -> None:
        if result.error is not None:
            error = error_from_wire(result.error)
            error.param = f"{self.param}.{index}"
            self.fail(error)
            return
        self.results[index] = result
        complete = [one for one in self.results if one is not None]
        if len(complete) == len(self.results) and not self.answer.done():
            self.answer.set_result(complete)


class BatchQueue:
    """Hand the inputs of all waiting requests to one encoder, a batch at a time.

    While a batch is computed the next one gathers. Requests take turns, so that a long one
    does not hold up short ones. At most `max_queue` requests wait; when the encoder is away
    (`suspend`), those that run fail by what `encode` raises and the others wait.
    """

    def __init__(self, encode: EncodeBatch, *, max_queue: int) -> None:
        """Start suspended."""
        self._encode = encode
        self._max_queue = max_queue
        self._jobs: deque[_Job] = deque()
        self._there = asyncio.Event()
        self._work_there = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Count the requests that are not answered yet."""
        return len(self._jobs)

    def resume(self) -> None:
        """Compute what waits; the encoder is there."""
        self._there.set()
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def suspend(self) -> None:
        """Start no batch until `resume`."""
        self._there.clear()

    async def encode(self, inputs: Sequence[EncoderInput], *, param: str) -> list[Encoded]:
        """Encode inputs together with those of others; the results are in their order.

        Raises `ApiError`: 503 `server_overloaded` when too many requests wait, or what made
        one of the inputs impossible; the error's `param` is its place behind `param`.
        """
        if len(self._jobs) >= self._max_queue + 1:
            message = (
                f"{len(self._jobs)} requests are waiting for this model, as many as may. "
                "Try again later."
            )
            raise ApiError(503, message, code="server_overloaded", retry_after=_RETRY_AFTER)
        job = _Job(inputs, param)
        self._jobs.append(job)
        self._work_there.set()
        try:
            return await job.answer
        finally:
            job.answer.cancel()
            if job in self._jobs:
                self._jobs.remove(job)

    def fail_all(self, error: ApiError) -> None:
        """Make every waiting request fail."""
        while self._jobs:
            self._jobs.popleft().fail(error)

    async def close(self, error: ApiError) -> None:
        """Stop for good; whatever waits or runs fails with `error`."""
        self.suspend()
        self.fail_all(error)
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
            self._worker = None

    async def _work(self) -> None:
        while True:
            await self._work_there.wait()
            await self._there.wait()
            batch = self._gather()
            if batch:
                await self._run(batch)
            if not any(job.open for job in self._jobs):
                self._work_there.clear()

    def _gather(self) -> list[tuple[_Job, int]]:
        """Take the next batch, some inputs of each request in turn."""
        batch: list[tuple[_Job, int]] = []
        size = 0
        waiting = [job for job in self._jobs if job.open]
        while waiting:
            for job in list(waiting):
                for _ in range(_TURN_INPUTS):
                    if job.taken == len(job.inputs):
                        waiting.remove(job)
                        break
                    size += _size(job.inputs[job.taken])
                    full = len(batch) >= MAX_BATCH_INPUTS or size > MAX_BATCH_SIZE
                    if batch and full:
                        self._jobs.rotate(-1)
                        return batch
                    batch.append((job, job.taken))
                    job.taken += 1
        return batch

    async def _run(self, batch: list[tuple[_Job, int]]) -> None:
        try:
            results = await self._encode([job.inputs[index] for job, index in batch])
        except ApiError as error:
            for job, _ in batch:
                job.fail(error)
            return
        except Exception:
            logger.exception("a batch fails")
            for job, _ in batch:
                job.fail(server_error())
            return
        for (job, index), result in zip(batch, results, strict=True):
            job.put(index, result)


def _size(one: EncoderInput) -> int:
    return len(one.text) + len(one.second or "") + len(one.token_ids or ())
