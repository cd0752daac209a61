"""Read a grammar back and draw texts from it: examples for people, samples for tests."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Mapping
from typing import Any

Node = tuple[Any, ...]

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<literal>"(?:\\.|[^"\\])*")
    | (?P<class>\[\^?(?:\\.|[^\]\\])*\])
    | (?P<count>\{\d+(?:,\d*)?\})
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<sign>[()|*+?])
    )""",
    re.VERBOSE,
)
_COUNTS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_ALPHABET = string.ascii_lowercase + "".join(map(chr, range(0x20, 0x7F))) + "äß€漢😀\n"
_UNREACHED = 10**6
_SHORT_FROM = 30
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class GrammarReader:
    """Hold the rules of a grammar in our dialect and draw from them.

    Raises `ValueError` for a grammar it cannot read.
    """

    def __init__(self, text: str) -> None:
        """Parse every rule."""
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        self._rules: dict[str, Node] = {}
        for line in text.splitlines():
            name, separator, body = line.partition("::=")
            if separator:
                self._rules[name.strip()] = self._rule(body)
        self._heights = self._measure()

    @property
    def rules(self) -> Mapping[str, Node]:
        """Return the rules by their names."""
        return self._rules

    @property
    def ends(self) -> bool:
        """Tell whether any text is complete: rules may call themselves without end."""
        return self._heights.get("root", _UNREACHED) < _UNREACHED

    def draw(self, rng: random.Random) -> str:
        """Draw one text, short ones more often than long ones."""
        return self._draw(("name", "root"), rng, 0)

    def shortest(self) -> str:
        """Return one of the flattest texts: optional parts left out, first characters taken."""
        return self._draw(("name", "root"), None, _SHORT_FROM + 1)

    def _rule(self, body: str) -> Node:
        self._tokens = [
            (match.lastgroup or "", match.group(match.lastgroup or 0))
            for match in _TOKEN.finditer(body)
        ]
        self._at = 0
        rule = self._alternatives()
        if self._at < len(self._tokens):
            raise ValueError("a rule does not end where it should")
        return rule

    def _alternatives(self) -> Node:
        branches = [self._sequence()]
        while self._sign("|"):
            branches.append(self._sequence())
        return ("or", tuple(branches))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._tokens) and self._tokens[self._at][1] not in {"|", ")"}:
            kind, text = self._tokens[self._at]
            self._at += 1
            atom: Node = (kind, text)
            if text == "(" and kind == "sign":
                atom = self._alternatives()
                if not self._sign(")"):
                    raise ValueError("a group is never closed")
            parts.append(self._quantified(atom))
        return ("and", tuple(parts))

    def _quantified(self, atom: Node) -> Node:
        if self._at == len(self._tokens):
            return atom
        kind, text = self._tokens[self._at]
        if kind == "count":
            first, comma, second = text[1:-1].partition(",")
            high = int(second) if second else (None if comma else int(first))
            self._at += 1
            return ("times", atom, int(first), high)
        if kind == "sign" and text in _COUNTS:
            self._at += 1
            return ("times", atom, *_COUNTS[text])
        return atom

    def _sign(self, sign: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign):
            self._at += 1
            return True
        return False

    def _measure(self) -> dict[str, int]:
        self._heights = dict.fromkeys(self._rules, _UNREACHED)
        while True:
            found = {
                name: min(self._height(rule), _UNREACHED) for name, rule in self._rules.items()
            }
            if found == self._heights:
                return found
            self._heights = found

    def _height(self, node: Node) -> int:
        kind, value = node[0], node[1]
        if kind == "or":
            return min(self._height(branch) for branch in value)
        if kind == "and":
            return max((self._height(part) for part in value), default=0)
        if kind == "times":
            return self._height(value) if node[2] else 0
        return self._heights.get(value, _UNREACHED) + 1 if kind == "name" else 0

    def _draw(self, node: Node, rng: random.Random | None, depth: int) -> str:
        kind, value = node[0], node[1]
        short = rng is None or depth > _SHORT_FROM
        if kind == "or":
            pick = min(value, key=self._height) if short or rng is None else rng.choice(value)
            return self._draw(pick, rng, depth + 1)
        if kind == "and":
            return "".join(self._draw(part, rng, depth + 1) for part in value)
        if kind == "times":
            return "".join(
                self._draw(value, rng, depth + 1) for _ in range(_count(node, rng, short=short))
            )
        if kind == "name":
            if value not in self._rules:
                raise ValueError(f"there is no rule {value}")
            return self._draw(self._rules[value], rng, depth + 1)
        if kind == "literal":
            return plain(value[1:-1])
        members = _members(value)
        return members[0] if rng is None else rng.choice(members)


def _count(node: Node, rng: random.Random | None, *, short: bool) -> int:
    low, high = node[2], node[3]
    if short or rng is None:
        return int(low)
    if high is not None and rng.random() < 0.1:
        return int(high)
    return rng.randint(low, low + 3 if high is None else min(high, low + 3))


def _members(text: str) -> str:
    pattern = re.compile(text.replace("[[", "[\\["))
    found = "".join(char for char in _ALPHABET if pattern.fullmatch(char))
    if not found:
        found = "".join(chr(c) for c in range(0x3000) if pattern.fullmatch(chr(c)))
    if not found:
        raise ValueError("a class has no common member")
    return found


def plain(text: str) -> str:
    """Return what the inside of a literal stands for."""

    def one(match: re.Match[str]) -> str:
        body = match.group(1)
        if len(body) > 1:
            return chr(int(body[1:], 16))
        return _ESCAPED.get(body, body)

    return _ESCAPE.sub(one, text)
