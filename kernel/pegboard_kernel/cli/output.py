"""What commands print: aligned tables for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

import msgspec


def print_json(value: Any) -> None:  # noqa: ANN401 - any encodable value
    """Print a Struct or plain data as indented JSON."""
    print(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns two blanks apart; the last one is as long as it is."""
    lines = [[plain(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(cells).rstrip())


def print_facts(facts: dict[str, object]) -> None:
    """Print names and values below each other; those without a value are left out."""
    told = {name: plain(text(value)) for name, value in facts.items() if value not in (None, "")}
    width = max(map(len, told), default=0) + 2
    for name, value in told.items():
        print(f"{name + ':':{width}}{value}")


def complain(message: str) -> None:
    """Print a fault as one line of standard error."""
    print(f"pegboard: {plain(message)}", file=sys.stderr)


def plain(words: str) -> str:
    """Return text that is one line and does nothing to a terminal, whoever wrote it."""
    line = " ".join(words.split())
    return "".join(one for one in line if unicodedata.category(one) not in ("Cc", "Cf", "Cs"))


def text(value: object) -> str:
    """Write a value for people; what is not known is a dash."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "-"  # pyright: ignore[reportUnknownArgumentType]  # any list
    return "-" if value is None else str(value)


def size(count: object) -> str:
    """Write a number of bytes in decimal units with three digits."""
    if not isinstance(count, (int, float)) or count < 0:
        return "-"
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:.{0 if value >= 99.5 or unit == 'B' else 1}f} {unit}"
