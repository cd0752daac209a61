"""Expressions for numbers within bounds, by comparing digits."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

_MORE_DIGITS = 15
_ANY_INTEGER = r'("0" | [1-9] [0-9]{0,14})'


@dataclass(frozen=True)
class Bound:
    """Hold one end of a range; `value` `None` is unbounded."""

    value: Decimal | None = None
    exclusive: bool = False


def integer_range(low: int | None, high: int | None) -> str | None:
    """Return the expression of integers in [low, high]; `None` when there are none."""
    if low is not None and high is not None and low > high:
        return None
    parts: list[str] = []
    if low is None or low < 0:
        smallest = None if low is None else -low
        largest = 1 if high is None or high >= 0 else -high
        if smallest is None or smallest >= largest:
            parts.append('"-" ' + _natural_range(largest, smallest))
    if high is None or high >= 0:
        parts.append(_natural_range(max(low or 0, 0), high))
    return _any_of(parts) if parts else None


def _natural_range(low: int, high: int | None) -> str:
    if high is None:
        return _natural_from(low)
    parts: list[str] = []
    start = low
    for digits in range(len(str(low)), len(str(high)) + 1):
        end = min(high, 10**digits - 1)
        parts.append(_same_length(str(start), str(end)))
        start = 10**digits
    return _any_of(parts)


def _natural_from(low: int) -> str:
    if low == 0:
        return _ANY_INTEGER
    digits = len(str(low))
    longer = f"[1-9] [0-9]{{{digits},{digits + _MORE_DIGITS}}}"
    return _any_of([_same_length(str(low), "9" * digits), longer])


def _same_length(low: str, high: str) -> str:
    """Match digit strings of one length between `low` and `high`, both included."""
    if low == high:
        return f'"{low}"'
    if low[0] == high[0]:
        return f'"{low[0]}" {_same_length(low[1:], high[1:])}'
    rest = len(low) - 1
    if not rest:
        return _digit(low[0], high[0])
    first, last = int(low[0]), int(high[0])
    parts: list[str] = []
    if set(low[1:]) != {"0"}:
        parts.append(f'"{low[0]}" {_same_length(low[1:], "9" * rest)}')
        first += 1
    closing = None
    if set(high[1:]) != {"9"}:
        closing = f'"{high[0]}" {_same_length("0" * rest, high[1:])}'
        last -= 1
    if first <= last:
        parts.append(f"{_digit(str(first), str(last))} [0-9]{{{rest}}}")
    if closing:
        parts.append(closing)
    return _any_of(parts)


def number_range(low: Bound, high: Bound) -> str | None:
    """Return the expression of decimal numbers between the bounds; `None` when there are none.

    Written without exponents and with at most 15 digits after the point.
    """
    parts: list[str] = []
    if low.value is None or low.value < 0:
        floor_value = Decimal(0)
        floor = Bound(floor_value, exclusive=True)
        ends_below = high.value is not None and high.value < 0
        near = Bound(-(high.value or floor_value), high.exclusive) if ends_below else floor
        far = Bound() if low.value is None else Bound(-low.value, low.exclusive)
        below = _positive_range(near, far)
        if below:
            parts.append(f'"-" {below}')
    if high.value is None or high.value >= 0:
        start = low if low.value is not None and low.value >= 0 else Bound(Decimal(0))
        above = _positive_range(start, high)
        if above:
            parts.append(above)
    return _any_of(parts) if parts else None


def _positive_range(low: Bound, high: Bound) -> str | None:
    low_value = low.value or Decimal(0)
    if high.value is not None:
        empty = low_value > high.value or (
            low_value == high.value and (low.exclusive or high.exclusive)
        )
        if empty:
            return None
    low_whole, low_digits = _split(low_value)
    if high.value is None:
        first = _with_fraction(low_whole, low_digits, None, low.exclusive, exclusive_high=False)
        rest = f"{_natural_range(low_whole + 1, None)} {_any_fraction()}"
        return _any_of([part for part in (first, rest) if part])
    high_whole, high_digits = _split(high.value)
    if low_whole == high_whole:
        return _with_fraction(
            low_whole, low_digits, high_digits, low.exclusive, exclusive_high=high.exclusive
        )
    parts = [
        _with_fraction(low_whole, low_digits, None, low.exclusive, exclusive_high=False),
        f"{_natural_range(low_whole + 1, high_whole - 1)} {_any_fraction()}"
        if high_whole - low_whole > 1
        else None,
        _with_fraction(
            high_whole, "", high_digits, exclusive_low=False, exclusive_high=high.exclusive
        ),
    ]
    return _any_of([part for part in parts if part])


def _with_fraction(
    whole: int, low: str, high: str | None, exclusive_low: bool, *, exclusive_high: bool
) -> str | None:
    """Match `whole` with a fraction whose digits lie between `low` and `high`."""
    fraction = _fraction(low, high, exclusive_low, exclusive_high)
    bare = not low.strip("0") and not exclusive_low and not (high == "" and exclusive_high)
    if fraction is None:
        return f'"{whole}"' if bare else None
    return f'"{whole}" ("." {fraction})?' if bare else f'"{whole}" "." {fraction}'


def _fraction(low: str, high: str | None, exclusive_low: bool, exclusive_high: bool) -> str | None:
    """Match a non-empty digit string d with 0.low <= 0.d <= 0.high."""
    if high is None:
        return _fraction_from(low, exclusive_low)
    if not high.strip("0"):
        fits = not low.strip("0") and not exclusive_low and not exclusive_high
        return '"0"{1,15}' if fits else None
    if not low.strip("0"):
        upper = _fraction_to(high, exclusive_high)
        if not exclusive_low:
            return upper
        low = ""
    first_low, first_high = int((low or "0")[0]), int(high[0])
    if first_low == first_high:
        rest = _fraction(low[1:], high[1:], exclusive_low, exclusive_high)
        alone = not low[1:].strip("0") and not exclusive_low
        return _then(str(first_low), rest, alone=alone and not (exclusive_high and not high[1:]))
    parts = [
        _then(
            str(first_low),
            _fraction_from(low[1:], exclusive_low),
            alone=not low[1:].strip("0") and not exclusive_low,
        )
    ]
    if first_high - first_low > 1:
        parts.append(f"{_digit(str(first_low + 1), str(first_high - 1))} [0-9]{{0,14}}")
    upper = _fraction_to(high[1:], exclusive_high)
    parts.append(_then(str(first_high), upper, alone=bool(high[1:]) or not exclusive_high))
    return _any_of([part for part in parts if part])


def _fraction_from(low: str, exclusive: bool) -> str | None:
    if not low:
        return '"0"{0,9} [1-9] [0-9]{0,5}' if exclusive else "[0-9]{1,12}"
    parts: list[str] = []
    if low[0] != "9":
        parts.append(f"{_digit(str(int(low[0]) + 1), '9')} [0-9]{{0,14}}")
    rest = _fraction_from(low[1:], exclusive)
    parts.append(_then(low[0], rest, alone=not low[1:].strip("0") and not exclusive) or "")
    return _any_of([part for part in parts if part])


def _fraction_to(high: str, exclusive: bool) -> str | None:
    if not high:
        return None if exclusive else '"0"{1,15}'
    parts: list[str] = []
    if high[0] != "0":
        parts.append(f"{_digit('0', str(int(high[0]) - 1))} [0-9]{{0,14}}")
    rest = _fraction_to(high[1:], exclusive)
    alone = bool(high[1:]) or not exclusive
    last = _then(high[0], rest, alone=alone)
    if last:
        parts.append(last)
    return _any_of(parts) if parts else None


def _then(digit: str, rest: str | None, *, alone: bool) -> str | None:
    if rest is None:
        return f'"{digit}"' if alone else None
    return f'"{digit}" ({rest})?' if alone else f'"{digit}" {_group(rest)}'


def _split(value: Decimal) -> tuple[int, str]:
    whole, _, digits = format(value, "f").partition(".")
    return int(whole), digits.rstrip("0")


def _any_fraction() -> str:
    return '("." [0-9]{1,15})?'


def _digit(low: str, high: str) -> str:
    return f'"{low}"' if low == high else f"[{low}-{high}]"


def _group(expression: str) -> str:
    return f"({expression})" if "|" in expression else expression


def _any_of(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + " | ".join(parts) + ")"
