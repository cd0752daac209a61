"""Values that take a while to make, made once and remembered for as long as they are used."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from pegboard_contracts.errors import ApiError

T = TypeVar("T")


class Remembered(Generic[T]):
    """Keep the most recently used values by their keys.

    Who asks while a value is being made waits for the same one. A refusal (`ApiError` 400)
    is remembered like a value; other faults are raised and forgotten.
    """

    def __init__(self, size: int) -> None:
        """Keep at most `size` values."""
        self._size = size
        self._tasks: OrderedDict[str, asyncio.Task[T]] = OrderedDict()

    async def get(self, key: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the value of `key`, made by `make` unless it is remembered."""
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(make())
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._made(key, done))
            while len(self._tasks) > self._size:
                self._tasks.popitem(last=False)
        self._tasks.move_to_end(key)
        # Who stops waiting does not take the value from the others.
        return await asyncio.shield(task)

    def _made(self, key: str, task: asyncio.Task[T]) -> None:
        error = None if task.cancelled() else task.exception()
        refused = isinstance(error, ApiError) and error.status == 400
        if (task.cancelled() or (error is not None and not refused)) and (
            self._tasks.get(key) is task
        ):
            del self._tasks[key]
