"""Waiting that ends: keyrings and networks may hang, a request may not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """Run `work` on a thread of its own and return what it does, blocking.

    Raises `TimeoutError` when it takes longer; the thread goes on and holds up no exit.
    Raises what `work` raises.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the answer is awaited
            answer.set_exception(error)

    threading.Thread(target=run, name="pegboard-hub", daemon=True).start()
    return answer.result(timeout=seconds)
