"""What commands print: aligned tables for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec


def print_json(value: Any) -> None:  # noqa: ANN401 - any encodable value
    """Print a Struct or plain data as indented JSON."""
    print(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False))


def progress(text: str) -> AbstractContextManager[Any]:
    """Show that something is under way while the context lasts, on terminals only."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console  # noqa: PLC0415 - costs more than most commands

    return Console(stderr=True).status(text)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns two blanks apart; the last one is as long as it is."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())
