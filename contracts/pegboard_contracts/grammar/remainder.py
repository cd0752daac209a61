"""The grammar of what may still follow: an answer under a grammar goes on where it stopped."""

from __future__ import annotations

import re

from pegboard_contracts.grammar.builder import literal
from pegboard_contracts.grammar.examples import GrammarReader, Node, plain

_MOST_STACKS = 256
_MOST_DEPTH = 256
_NOTHING = '""'
_MOST_CHARACTERS = 1 << 16
_SIGNS: dict[tuple[int, int | None], str] = {(0, None): "*", (1, None): "+", (0, 1): "?"}

Stack = tuple[Node, ...]
"""What must still come, first things first."""


def remainder(grammar: str, prefix: str) -> str | None:
    """Return the grammar of every text that completes `prefix` to one of `grammar`.

    `None` when there is none, when the grammar is not in our dialect, recurses to the left,
    or leaves too much open at once. Takes time in proportion to the prefix.
    """
    if len(prefix) > _MOST_CHARACTERS:
        return None
    try:
        reader = GrammarReader(grammar)
        walk = _Walk(reader)
        for character in prefix:
            walk.step(character)
    except (ValueError, RecursionError):
        return None
    if not walk.stacks:
        return None
    lines = ["root ::= " + " | ".join(_sequence(stack) for stack in walk.stacks)]
    lines += [f"{_name(name)} ::= {_text(rule)}" for name, rule in reader.rules.items()]
    return "\n".join(lines) + "\n"


class _Walk:
    """Hold every way in which the text so far may be read."""

    def __init__(self, reader: GrammarReader) -> None:
        self._rules = reader.rules
        self.stacks: list[Stack] = [(("name", "root"),)]

    def step(self, character: str) -> None:
        found: dict[Stack, None] = {}
        for stack in self.stacks:
            for rest in self._after(stack, character, 0):
                found[rest] = None
        self.stacks = list(found)
        if len(self.stacks) > _MOST_STACKS:
            raise ValueError("too many readings")

    def _after(self, stack: Stack, character: str, depth: int) -> list[Stack]:
        """Return what may remain of `stack` behind one more character."""
        if not stack:
            return []
        if depth > _MOST_DEPTH:
            raise ValueError("a rule begins with itself")
        node, rest = stack[0], stack[1:]
        kind, value = node[0], node[1]
        if kind == "class":
            return [rest] if re.fullmatch(value.replace("[[", "[\\["), character) else []
        if kind == "literal" and value != _NOTHING:
            text = plain(value[1:-1])
            if text[0] != character:
                return []
            return [(("literal", literal(text[1:])), *rest) if len(text) > 1 else rest]
        return [
            after
            for opened in self._opened(node)
            for after in self._after((*opened, *rest), character, depth + 1)
        ]

    def _opened(self, node: Node) -> list[Stack]:
        """Return the sequences that a node without a character of its own stands for."""
        kind, value = node[0], node[1]
        if kind == "name":
            if value not in self._rules:
                raise ValueError("there is no such rule")
            return [(self._rules[value],)]
        if kind == "or":
            return [(branch,) for branch in value]
        if kind != "times":
            return [value if kind == "and" else ()]
        low, high = node[2], node[3]
        found: list[Stack] = []
        if high is None or high > 1:
            again = ("times", value, max(0, low - 1), None if high is None else high - 1)
            found.append((value, again))
        elif high == 1:
            found.append((value,))
        if low == 0:
            found.append(())
        return found


def _sequence(stack: Stack) -> str:
    return " ".join(_text(node) for node in stack) or _NOTHING


def _text(node: Node) -> str:
    kind, value = node[0], node[1]
    if kind == "or":
        return "(" + " | ".join(_text(branch) for branch in value) + ")"
    if kind == "and":
        return "(" + (" ".join(_text(part) for part in value) or _NOTHING) + ")"
    if kind == "times":
        low, high = node[2], node[3]
        sign = _SIGNS.get((low, high)) or f"{{{low},{'' if high is None else high}}}"
        return _text(value) + sign
    return _name(value) if kind == "name" else str(value)


def _name(name: str) -> str:
    # The old root may be referred to by a rule.
    return "root_at_first" if name == "root" else name
