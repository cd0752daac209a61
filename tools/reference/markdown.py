"""Small pieces of Markdown that every page uses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

_LABELLED = re.compile(r"^(Called|Returns|Raises|Example plugins?): ?(.*)$")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table; bars and line breaks inside cells are made harmless."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def docstring(subject: object) -> str:
    """Turn a docstring into paragraphs; its labelled lines become a list."""
    paragraphs: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.getdoc(subject) or ""):
        if block.startswith("    "):
            paragraphs.append(block)
            continue
        lines: list[str] = []
        for line in block.splitlines():
            if line.startswith("Source: "):
                break  # for those who change the code
            found = _LABELLED.match(line)
            if found:
                lines.append(f"- **{found[1]}:** {found[2]}")
            elif lines and not line.startswith((" ", "- ", "|")):
                lines[-1] += " " + line
            else:
                lines.append(line)
        if lines:
            paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs)


def first_line(subject: object) -> str:
    """Return the summary line of a docstring."""
    return (inspect.getdoc(subject) or "").partition("\n")[0]
