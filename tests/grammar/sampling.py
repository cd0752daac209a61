"""Draw random texts from a grammar, so that what it allows can be judged by others."""

from __future__ import annotations

import random
import re
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
_ALPHABET = [chr(code) for code in range(0x20, 0x7F)] + list("äß€漢😀\n\x01")


class Grammar:
    """Hold parsed rules and draw from them."""

    def __init__(self, text: str) -> None:
        self.rules: dict[str, Node] = {}
        self.heights: dict[str, int] = {}
        for line in text.splitlines():
            name, _, body = line.partition(" ::= ")
            tokens = [(m.lastgroup, m.group(m.lastgroup or 0)) for m in _TOKEN.finditer(body)]
            assert "".join(t for _, t in tokens).replace(" ", "") in body.replace(" ", ""), body
            self.tokens, self.at = tokens, 0
            self.rules[name] = self._alternatives()
            assert self.at == len(tokens), body
        self.heights = dict.fromkeys(self.rules, 10**6)
        while True:
            found = {name: min(self._height(rule), 10**6) for name, rule in self.rules.items()}
            if found == self.heights:
                break
            self.heights = found

    def _height(self, node: Node) -> int:
        kind, value = node[0], node[1]
        if kind == "or":
            return min(self._height(branch) for branch in value)
        if kind == "and":
            return max((self._height(part) for part in value), default=0)
        if kind == "times":
            return self._height(value) if node[2] else 0
        return self.heights[value] + 1 if kind == "name" else 0

    def _alternatives(self) -> Node:
        branches = [self._sequence()]
        while self._sign("|"):
            branches.append(self._sequence())
        return ("or", branches)

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self.at < len(self.tokens) and self.tokens[self.at][1] not in {"|", ")"}:
            kind, text = self.tokens[self.at]
            self.at += 1
            if text == "(":
                atom = self._alternatives()
                assert self._sign(")")
            else:
                atom = (kind, text)
            parts.append(self._quantified(atom))
        return ("and", parts)

    def _quantified(self, atom: Node) -> Node:
        if self.at < len(self.tokens):
            kind, text = self.tokens[self.at]
            if text in {"*", "+", "?"} or kind == "count":
                self.at += 1
                low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(text, (-1, -1))
                if kind == "count":
                    first, comma, second = (text or "")[1:-1].partition(",")
                    low = int(first)
                    high = int(second) if second else (None if comma else low)
                return ("times", atom, low, high)
        return atom

    def _sign(self, sign: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == ("sign", sign):
            self.at += 1
            return True
        return False

    def draw(self, rng: random.Random) -> str:
        return self._draw(("name", "root"), rng, 0)

    def _draw(self, node: Node, rng: random.Random, depth: int) -> str:
        kind, value = node[0], node[1]
        if kind == "or":
            pick = min(value, key=self._height) if depth > 40 else rng.choice(value)
            return self._draw(pick, rng, depth + 1)
        if kind == "and":
            return "".join(self._draw(part, rng, depth + 1) for part in value)
        if kind == "times":
            low, high = node[2], node[3]
            top = low if depth > 30 else (low + 3 if high is None else min(high, low + 3))
            if high is not None and depth <= 30 and rng.random() < 0.1:
                top = high
            return "".join(self._draw(value, rng, depth + 1) for _ in range(rng.randint(low, top)))
        if kind == "name":
            return self._draw(self.rules[value], rng, depth + 1)
        if kind == "literal":
            return _unescape(value[1:-1])
        matching = [c for c in _ALPHABET if _class_has(value, c)]
        matching = matching or [chr(c) for c in range(0x80, 0x3000) if _class_has(value, chr(c))]
        assert matching, value
        return rng.choice(matching)


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        body = match.group(1)
        if body[0] == "x":
            return chr(int(body[1:], 16))
        return {"n": "\n", "r": "\r", "t": "\t"}.get(body, body)

    return re.sub(r"\\(x[0-9a-f]{2}|.)", one, text)


def _class_has(text: str, char: str) -> bool:
    return re.fullmatch(text.replace("[[", "[\\["), char) is not None
