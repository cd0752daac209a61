"""Sets of characters as ranges of code points, and how a grammar writes them."""

from __future__ import annotations

LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)

Ranges = tuple[tuple[int, int], ...]
"""Sorted, disjoint, inclusive."""

DIGITS: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE: Ranges = ((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x2028, 0x2029), (0xFEFF, 0xFEFF))
LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D))
JSON_PLAIN: Ranges = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E), (0x80, LAST))
"""What stands as itself in a JSON string (DEL is left out, no model means it)."""

_JSON_ESCAPES = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r", 0x22: '\\"', 0x5C: "\\\\"}


def union(*sets: Ranges) -> Ranges:
    """Join sets."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pair for ranges in sets for pair in ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """Return every character that is not in `ranges`."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in ranges:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        gaps.append((start, LAST))
    return tuple(gaps)


def intersection(left: Ranges, right: Ranges) -> Ranges:
    """Return what is in both."""
    return complement(union(complement(left), complement(right)))


def expression(ranges: Ranges) -> str:
    """Write a set as a class, negated where that is shorter and the engine allows it.

    The engine cuts negated classes off at ASCII, so only those within it are negated.
    """
    rest = complement(ranges)
    if ranges[-1][1] == LAST and (not rest or rest[-1][1] < 0x80):
        return f"[^{_body(rest)}]" if rest else r"[^\x00]"
    return f"[{_body(_without_surrogates(ranges))}]"


def json_expression(ranges: Ranges) -> str | None:
    """Write a set the way its characters stand in a JSON string; `None` when none can."""
    parts: list[str] = []
    plain = intersection(ranges, JSON_PLAIN)
    if plain:
        parts.append(expression(plain))
    for code, escape in _JSON_ESCAPES.items():
        if any(low <= code <= high for low, high in ranges):
            parts.append('"\\\\' + escape + '"')
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else "(" + " | ".join(parts) + ")"


def _without_surrogates(ranges: Ranges) -> Ranges:
    return intersection(ranges, complement((_SURROGATES,)))


def _body(ranges: Ranges) -> str:
    return "".join(
        _char(low) if low == high else f"{_char(low)}-{_char(high)}" for low, high in ranges
    )


def _char(code: int) -> str:
    char = chr(code)
    if char in "\\]-^[":
        return "\\" + char
    if code < 0x20 or 0x7F <= code <= 0xA0:
        return f"\\x{code:02x}"
    if _SURROGATES[0] <= code <= _SURROGATES[1] or code in {0x2028, 0x2029, 0xFEFF}:
        return f"\\u{code:04x}"
    return char
