"""Who is asking: decided by the network guard, read by everything that owns state."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, cast

import msgspec

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

ANONYMOUS = "anonymous"
_STATE_KEY = "pegboard.principal"


class Principal(msgspec.Struct, frozen=True):
    """Identify the owner of requests and stored state.

    `owner` is `anonymous` or a hash of the API key, never the key.
    """

    owner: str = ANONYMOUS
    loopback: bool = True


def owner_of_key(key: str) -> str:
    """Derive an owner from an API key; the same key gives the same owner after a restart."""
    return "key-" + hashlib.sha256(b"pegboard-owner:" + key.encode()).hexdigest()[:32]


def set_principal(scope: dict[str, object], principal: Principal) -> None:
    """Attach `principal` to an ASGI scope; done by the guard, once per request."""
    scope[_STATE_KEY] = principal


def principal_of(connection: HTTPConnection) -> Principal:
    """Return who is asking; without a guard that is the anonymous owner."""
    return cast("Principal", connection.scope.get(_STATE_KEY, Principal()))
