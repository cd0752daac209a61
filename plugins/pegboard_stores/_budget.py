"""What every entry of a memory store obeys: owner, age, use, entries and bytes."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pegboard_contracts.stores import StoreLimits

T = TypeVar("T")
Key = tuple[str, str]
"""Owner and id."""

Clock = Callable[[], float]


@dataclass
class Entry(Generic[T]):
    """Hold a value with what the budget needs to know of it."""

    value: T
    size: int
    serial: int


class BudgetedEntries(Generic[T]):
    """Keep entries within limits; the least recently used goes first.

    `on_leave` is called with each value that leaves, whatever the reason. `extra_bytes`
    tells what is kept beside the entries. Not thread-safe.
    """

    def __init__(
        self,
        limits: StoreLimits,
        clock: Clock,
        on_leave: Callable[[T], None],
        extra_bytes: Callable[[], int] = int,
    ) -> None:
        """Start empty."""
        self._limits = limits
        self._clock = clock
        self._on_leave = on_leave
        self._extra_bytes = extra_bytes
        self._entries: OrderedDict[Key, Entry[T]] = OrderedDict()
        self._expiries: list[tuple[float, int, Key]] = []
        self._bytes = 0
        self._serial = 0

    def __len__(self) -> int:
        """Count the entries, after the expired ones have left."""
        self.sweep()
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Return the bytes of the entries and of what is kept beside them."""
        return self._bytes + self._extra_bytes()

    def find(self, key: Key, *, use: bool = True) -> T | None:
        """Return a value; `use` makes it the most recently used."""
        self.sweep()
        entry = self._entries.get(key)
        if entry is None:
            return None
        if use:
            self._entries.move_to_end(key)
        return entry.value

    def insert(self, key: Key, value: T, size: int, ttl_seconds: int) -> bool:
        """Insert or replace, then evict; returns whether the value is still there."""
        self.sweep()
        self.remove(key)
        self._serial += 1
        self._entries[key] = Entry(value, size, self._serial)
        self._bytes += size
        if ttl_seconds:
            heapq.heappush(self._expiries, (self._clock() + ttl_seconds, self._serial, key))
        self.evict()
        return key in self._entries

    def resize(self, key: Key, size: int) -> bool:
        """Note the new size of an entry and use it; one above the whole budget goes alone."""
        entry = self._entries[key]
        self._bytes += size - entry.size
        entry.size = size
        self._entries.move_to_end(key)
        if size > self._limits.max_bytes:
            self.remove(key)
        self.evict()
        return key in self._entries

    def remove(self, key: Key) -> bool:
        """Take an entry out."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self._bytes -= entry.size
        self._on_leave(entry.value)
        return True

    def sweep(self) -> None:
        """Take out what has reached its time to live."""
        now = self._clock()
        while self._expiries and self._expiries[0][0] <= now:
            _, serial, key = heapq.heappop(self._expiries)
            entry = self._entries.get(key)
            if entry is not None and entry.serial == serial:
                self.remove(key)

    def evict(self) -> None:
        """Take out the least recently used until the limits hold."""
        while self._entries and (
            len(self._entries) > self._limits.max_entries or self.bytes > self._limits.max_bytes
        ):
            self.remove(next(iter(self._entries)))
