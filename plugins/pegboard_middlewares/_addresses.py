"""Who is at the other end, and under which name we were called: pure functions."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def parse_address(text: str) -> Address | None:
    """Read an IP literal, brackets allowed; an IPv4 address in IPv6 clothes is unwrapped."""
    try:
        address = ipaddress.ip_address(text.strip().removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def client_address(
    peer: str | None, forwarded: Sequence[bytes], proxies: Sequence[Network]
) -> Address | None:
    """Return the client's address, or nothing when it cannot be known.

    `forwarded` are the values of `X-Forwarded-For`; they count only when the peer is one
    of `proxies`, and from the right up to the first address that is no proxy.
    """
    address = parse_address(peer or "")
    hops = b",".join(forwarded).decode("latin-1").split(",") if forwarded else []
    while address is not None and hops and _within(address, proxies):
        address = parse_address(hops.pop())
    return address


def _within(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def split_host(text: str, scheme: str) -> tuple[str, int] | None:
    """Read `name`, `name:port` or `[v6]:port`; nothing when it is malformed."""
    try:
        parts = urlsplit(f"//{text}")
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not name or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return name.lower().rstrip("."), port or _DEFAULT_PORTS.get(scheme, 80)


def split_origin(text: str) -> tuple[str, tuple[str, int]] | None:
    """Read an `Origin` header into scheme and host; `null` and malformed ones give nothing."""
    scheme, found, rest = text.partition("://")
    host = split_host(rest, scheme) if found and scheme in _DEFAULT_PORTS else None
    return None if host is None else (scheme, host)


def is_loopback_name(name: str) -> bool:
    """Tell whether a host's name leads to this machine without asking a resolver."""
    address = parse_address(name)
    if address is not None:
        return address.is_loopback
    return name == "localhost" or name.endswith(".localhost")


def is_wildcard(host: str) -> bool:
    """Tell whether binding to `host` means every interface."""
    address = parse_address(host)
    return not host or (address is not None and address.is_unspecified)
