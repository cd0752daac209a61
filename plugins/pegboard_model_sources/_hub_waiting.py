"""Waiting that ends: keyrings and networks may hang, a request may not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from pegboard_model_sources._hub_access import hub_unreachable

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """Run `work` on a thread of its own and return what it does, blocking.

    Raises `TimeoutError` when it takes longer; the thread goes on and holds up no exit.
    Raises what `work` raises.
    """
    answer: Future[T] = Future()
    _start(work, answer)
    return answer.result(timeout=seconds)


def _start(work: Callable[[], T], answer: Future[T]) -> None:
    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the answer is awaited
            answer.set_exception(error)

    threading.Thread(target=run, name="pegboard-hub", daemon=True).start()


class Desk:
    """Let an event loop ask what blocks, few questions at once, on threads apart.

    The loop's own worker threads serve the rest of the server, which a hub or a keyring that
    hangs must not hold up.
    """

    def __init__(self, places: int, seconds: float) -> None:
        """Answer `places` questions at once; a further one waits up to `seconds` for a place."""
        self._free = asyncio.Semaphore(places)
        self._seconds = seconds

    async def ask(self, work: Callable[[], T]) -> T:
        """Return what `work` does. Raises what it raises, and 502 when no place gets free.

        `work` is bounded by itself: it keeps its place to its end, also when nobody waits for
        it any more.
        """
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError:
            raise hub_unreachable("too many questions wait for its answer") from None
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def finish(answer: Future[T]) -> None:
            self._free.release()
            if outcome.cancelled():
                return
            error = answer.exception()
            if error is None:
                outcome.set_result(answer.result())
            else:
                outcome.set_exception(error)

        def tell(answer: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(finish, answer)

        answer: Future[T] = Future()
        answer.add_done_callback(tell)
        _start(work, answer)
        return await outcome
