"""Several grammars as one."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PIECE = re.compile(
    r"""(?P<kept>"(?:\\.|[^"\\])*"|\[\^?(?:\\.|[^\]\\])*\]|\#[^\n]*|\{[^}]*\})"""
    r"""|(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)"""
)


def alternatives(grammars: Sequence[str]) -> str:
    """Return the grammar of every text that one of `grammars` allows; rules are renamed."""
    lines = ["root ::= " + " | ".join(f"form{index}_root" for index in range(len(grammars)))]
    for index, grammar in enumerate(grammars):
        lines.append(_renamed(grammar, f"form{index}_").rstrip("\n"))
    return "\n".join(lines) + "\n"


def _renamed(grammar: str, prefix: str) -> str:
    def one(match: re.Match[str]) -> str:
        return match["kept"] or prefix + match["name"]

    return _PIECE.sub(one, grammar)
