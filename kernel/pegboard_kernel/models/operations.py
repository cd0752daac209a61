"""Operations: the long pieces of work on models, one at a time for each."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from pegboard_contracts.errors import ApiError
from pegboard_contracts.models import OperationType, Phase, Progress

from pegboard_kernel.sanitizing import sanitized

if TYPE_CHECKING:
    from pegboard_kernel.models.record import ModelRecord

T = TypeVar("T")

logger = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 15.0


class Operation:
    """Be one load, conversion or download: its id, its task and how far it is.

    `refusal` says why it cannot be cancelled at the moment; `settled` that its end is told.
    """

    def __init__(self, record: ModelRecord, kind: OperationType) -> None:
        """Give it an id; nothing runs yet."""
        self.id = f"{kind}-{uuid.uuid4().hex}"
        self.kind: OperationType = kind
        self.record = record
        self.cancelled = False
        self.refusal: ApiError | None = None
        self.settled = False
        self._started_at = time.time()

    def rename(self, kind: OperationType) -> None:
        """Turn out to be work of another kind, before anybody knows the id."""
        self.id = f"{kind}-{self.id.partition('-')[2]}"
        self.kind = kind

    def progress(
        self,
        phase: Phase,
        message: str = "",
        *,
        percent: float | None = None,
        completed: int | None = None,
        total: int | None = None,
    ) -> Progress:
        """Describe how far it is; numbers that cannot be are left out, never corrected."""
        if percent is not None and not (math.isfinite(percent) and 0 <= percent <= 100):
            percent = None
        if total is not None and (total < 0 or (completed is not None and completed > total)):
            completed = total = None
        if completed is not None and completed < 0:
            completed = total = None
        return Progress(
            operation_id=self.id,
            operation_type=self.kind,
            phase=phase,
            message=sanitized(message),
            percent=percent,
            completed=completed,
            total=total,
            started_at=self._started_at,
            updated_at=time.time(),
        )


class Operations:
    """Run the work of all models and end it when the server stops. Event loop only."""

    def __init__(self) -> None:
        """Start with nothing to do."""
        self.closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    def check_open(self) -> None:
        """Raise 503 `server_stopping` once the server is about to end."""
        if self.closing:
            raise stopping()

    def begin(
        self,
        record: ModelRecord,
        work: Coroutine[Any, Any, None],
        operation: Operation | None = None,
    ) -> asyncio.Task[None]:
        """Run `work` on a model; it is the model's only work until it ends."""
        if record.work is not None or self.closing:
            work.close()
            raise RuntimeError("a model has one piece of work at a time, and none at the end")
        task = asyncio.get_running_loop().create_task(_run(record, work))
        record.work, record.operation = task, operation
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run what is nobody's operation, until the server stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def cancel(self, operation: Operation) -> None:
        """Cancel a running operation and return when all of it is gone."""
        task = operation.record.work
        if task is None or operation.record.operation is not operation:
            return
        first, operation.cancelled = not operation.cancelled, True
        # Work that has not begun would not hear of it.
        await asyncio.sleep(0)
        if first:
            task.cancel()
        await asyncio.wait((task,))

    async def close(self) -> None:
        """Cancel everything and return when it is gone, after some seconds at most."""
        self.closing = True
        await asyncio.sleep(0)
        tasks = [task for task in self._tasks if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_SHUTDOWN_SECONDS)


async def _run(record: ModelRecord, work: Coroutine[Any, Any, None]) -> None:
    mine = asyncio.current_task()
    try:
        await work
    except Exception:
        logger.exception("work on the model '%s' ends by a fault of its own", record.entry.id)
    finally:
        if record.work is mine:
            record.work = record.operation = None


async def settle(record: ModelRecord) -> None:
    """Wait until nothing runs for a record, not even what follows on what ran."""
    while (work := record.work) is not None:
        await asyncio.wait((work,))


def stopping() -> ApiError:
    """Make the 503 of a server that is about to end."""
    message = "The server is stopping and begins nothing any more."
    return ApiError(503, message, code="server_stopping", retry_after=10)


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Await short work to its end, also when the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise
