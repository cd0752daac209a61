"""The recent changes of all models, for listings and for those who follow."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

from pegboard_contracts.lifecycle import EventPage, LifecycleEvent

Level = Literal["info", "warning", "error"]

_REMEMBERED = 500
_WAITING = 1000


class EventLog:
    """Remember changes and tell of new ones: implements `LifecycleEvents`.

    A model has one progress event at most in memory, its latest, so that a busy model does
    not push out what happened to the others. Event loop only.
    """

    def __init__(
        self, *, remembered: int = _REMEMBERED, clock: Callable[[], float] = time.time
    ) -> None:
        """Begin a new epoch; `clock` tells the time of events in seconds since 1970."""
        self._epoch = uuid.uuid4().hex[:12]
        self._clock = clock
        self._remembered = remembered
        self._events: dict[int, LifecycleEvent] = {}
        self._progress: dict[str, int] = {}
        self._last = 0
        self._forgotten = 0
        self._followers: set[_Follower] = set()
        self._closed = False

    def tell(
        self,
        kind: str,
        message: str,
        *,
        level: Level = "info",
        model: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Remember an event of a `kind` (`LifecycleEvent.type`) and hand it to all followers."""
        self._last += 1
        event = LifecycleEvent(
            id=self._name(self._last),
            timestamp=self._clock(),
            level=level,
            type=kind,
            message=message,
            model=model,
            data=data or {},
        )
        if kind == "progress" and model is not None:
            self._events.pop(self._progress.get(model, 0), None)
            self._progress[model] = self._last
        self._events[self._last] = event
        if len(self._events) > self._remembered:
            self._forgotten = next(iter(self._events))
            del self._events[self._forgotten]
        for follower in self._followers:
            follower.take(event)

    def close(self) -> None:
        """End every follower behind what it has been told; the server stops."""
        self._closed = True
        for follower in self._followers:
            follower.end()

    def recent(self, after: str | None = None, limit: int = 50) -> EventPage:
        """Return events behind a cursor, oldest first; see `LifecycleEvents.recent`.

        `latest` is the cursor to go on from: the last event of the page when more wait.
        """
        limit = max(1, limit)
        if after is None:
            page = list(self._events.values())[-limit:]
            return EventPage(events=page, latest=self._name(self._last))
        number = self._number(after)
        found = [event for at, event in self._events.items() if number is None or at > number]
        reset = number is None or number < self._forgotten
        latest = self._name(self._last) if len(found) <= limit else found[limit - 1].id
        return EventPage(events=found[:limit], latest=latest, reset_required=reset)

    async def follow(self, after: str | None = None) -> AsyncGenerator[LifecycleEvent, None]:
        """Yield what is behind `after`, then each new event; see `LifecycleEvents.follow`.

        Without a cursor it begins with the next event. A reader that misses some, at the
        beginning or because it is too slow, gets a `notice` with `reset_required` first. It
        ends when the log is closed.
        """
        follower = _Follower(self._missed)
        if after is not None:
            page = self.recent(after, self._remembered)
            if page.reset_required:
                follower.take(self._missed())
            for event in page.events:
                follower.take(event)
        self._followers.add(follower)
        if self._closed:
            follower.end()
        try:
            while (told := await follower.next()) is not None:
                yield told
        finally:
            self._followers.discard(follower)

    def _missed(self) -> LifecycleEvent:
        return LifecycleEvent(
            id=self._name(self._last),
            timestamp=self._clock(),
            level="warning",
            type="notice",
            message="Some events are forgotten; read the state of all models again.",
            data={"reset_required": True},
        )

    def _name(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    def _number(self, cursor: str) -> int | None:
        epoch, _, number = cursor.rpartition("-")
        if epoch != self._epoch or not (number.isascii() and number.isdigit()):
            return None
        value = int(number[:18])
        return value if value <= self._last else None


class _Follower:
    """Hold what one reader has not taken yet."""

    def __init__(self, missed: Callable[[], LifecycleEvent]) -> None:
        self._missed = missed
        self._waiting: dict[object, LifecycleEvent] = {}
        self._there = asyncio.Event()
        self._ended = False

    def take(self, event: LifecycleEvent) -> None:
        key: object = event.id
        if event.type == "progress":
            key = ("progress", event.model)
            # Behind what came since, so that ids stay in order.
            self._waiting.pop(key, None)
        elif event.type == "notice" and event.data:
            key = ("notice", event.id)
        self._waiting[key] = event
        if len(self._waiting) > _WAITING:
            self._waiting = {"missed": self._missed()}
        self._there.set()

    def end(self) -> None:
        self._ended = True
        self._there.set()

    async def next(self) -> LifecycleEvent | None:
        while not self._waiting:
            if self._ended:
                return None
            self._there.clear()
            await self._there.wait()
        return self._waiting.pop(next(iter(self._waiting)))
