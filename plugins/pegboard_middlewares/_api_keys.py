"""Keys, compared in constant time, and the throttle of those who guess."""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence

from pegboard_contracts.principal import owner_of_key

_MOST_CLIENTS = 1024


class KeyRing:
    """Know the configured keys by their digests."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Take the keys; none means that nobody is asked for one."""
        self._keys = [(_digest(key.encode()), owner_of_key(key)) for key in keys]

    def __bool__(self) -> bool:
        """Tell whether a key is asked for."""
        return bool(self._keys)

    def owner(self, offered: bytes) -> str | None:
        """Return the owner of a key, or nothing; every key is compared whatever matched."""
        digest = _digest(offered)
        found = None
        for known, owner in self._keys:
            if hmac.compare_digest(known, digest):
                found = owner
        return found


def offered_keys(headers: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the keys a request offers: bearer tokens and the two key headers, never the URL."""
    keys: list[bytes] = []
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.strip().partition(b" ")
            if scheme.lower() == b"bearer" and token.strip():
                keys.append(token.strip())
        elif name in {b"x-api-key", b"api-key"} and value.strip():
            keys.append(value.strip())
    return keys


class Throttle:
    """Count failures per client in a sliding window; bounded, oldest clients are forgotten."""

    def __init__(self, limit: int, window: float, clock: Callable[[], float]) -> None:
        """Allow `limit` failures in `window` seconds."""
        self._limit = limit
        self._window = window
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def fail(self, client: str) -> float | None:
        """Note a failure; return the seconds to wait when it was one too many."""
        now = self._clock()
        failures = self._failures.setdefault(client, deque())
        self._failures.move_to_end(client)
        if len(self._failures) > _MOST_CLIENTS:
            self._failures.popitem(last=False)
        while failures and failures[0] <= now - self._window:
            failures.popleft()
        if len(failures) >= self._limit:
            return failures[0] + self._window - now
        failures.append(now)
        return None

    def forget(self, client: str) -> None:
        """Forget a client's failures: it has shown a good key."""
        self._failures.pop(client, None)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
