"""Collect the rules of one grammar."""

from __future__ import annotations

import json
import re
from typing import Any

PLAIN = r'[^"\\\x00-\x1f\x7f]'
"""A character that stands as itself in a JSON string."""

_SHARED = {
    # Escapes above \u00ff are left out: such characters stand as themselves, and a lone
    # surrogate can then not be written. The class is repeated in place because the engine
    # masks a repeated class five times faster than a repeated rule.
    "json_escape": r'"\\" (["\\/bfnrt] | "u00" [0-9a-fA-F] [0-9a-fA-F])',
    "json_chars": f"{PLAIN}* (json_escape {PLAIN}*)*",
    "json_string": rf'"\"" {PLAIN}* (json_escape {PLAIN}*)* "\""',
    "json_integer": r'"-"? ("0" | [1-9] [0-9]{0,14})',
    "json_number": r'"-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?',
    "json_boolean": r'"true" | "false"',
    "json_null": r'"null"',
    # One blank at most, so that no answer can be filled with white space.
    "json_comma": r'"," " "?',
    "json_colon": r'":" " "?',
    "json_member": "json_string json_colon json_value",
    "json_object": r'"{" (json_member (json_comma json_member)*)? "}"',
    "json_array": r'"[" (json_value (json_comma json_value)*)? "]"',
    "json_value": (
        "json_object | json_array | json_string | json_number | json_boolean | json_null"
    ),
}
_NEEDS = {
    "json_chars": ("json_escape",),
    "json_string": ("json_escape",),
    "json_member": ("json_string", "json_colon", "json_value"),
    "json_object": ("json_member", "json_comma"),
    "json_array": ("json_value", "json_comma"),
    "json_value": (
        "json_object",
        "json_array",
        "json_string",
        "json_number",
        "json_boolean",
        "json_null",
    ),
}
_CONTROL = {"\n": r"\n", "\r": r"\r", "\t": r"\t", '"': r"\"", "\\": r"\\"}
_SWALLOWED = re.compile(r"(?<=[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\xff])(?=[0-9a-fA-F])")
_FIRST_PRINTABLE = 0x20


def literal(text: str) -> str:
    """Return the expression that matches exactly `text`."""
    # The engine writes such a character as an escape of two digits and reads that back with
    # every hexadecimal digit that follows: the literal must end between them.
    parts = _SWALLOWED.split(text)
    quoted = ['"' + "".join(_escape(char) for char in part) + '"' for part in parts]
    return quoted[0] if len(quoted) == 1 else "(" + " ".join(quoted) + ")"


def json_literal(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return the expression that matches the compact JSON text of `value`."""
    return literal(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _escape(char: str) -> str:
    if char in _CONTROL:
        return _CONTROL[char]
    if ord(char) < _FIRST_PRINTABLE or ord(char) == 0x7F:
        return f"\\x{ord(char):02x}"
    return char


class GrammarBuilder:
    """Hold the named rules of a grammar until it is written out.

    Rules keep the order in which they were added. Lists whose schema sets no limit get at
    most `most_items` items, and four times as many plain values. Not thread-safe.
    """

    def __init__(self, most_items: int | None = None) -> None:
        """Start without rules."""
        self.most_items = most_items
        self._rules: dict[str, str] = {}
        self._taken: dict[str, int] = {}

    def __len__(self) -> int:
        """Count the rules."""
        return len(self._rules)

    def shared(self, name: str) -> str:
        """Add one of the common JSON rules (`json_string` ...) once and return its name."""
        if name not in self._rules:
            self._rules[name] = _SHARED[name]
            for needed in _NEEDS.get(name, ()):
                self.shared(needed)
        return name

    def reserve(self, hint: str) -> str:
        """Return a name nobody else has, for a rule that will be defined later."""
        base = "".join(c if c.isascii() and c.isalnum() else "_" for c in hint)[:40] or "rule"
        base = base if base[0].isalpha() else f"r_{base}"
        count = self._taken.get(base, 0)
        self._taken[base] = count + 1
        return f"{base}_{count}"

    def define(self, name: str, expression: str) -> None:
        """Set the expression of a reserved rule, or of `root`."""
        self._rules[name] = expression

    def rule(self, hint: str, expression: str) -> str:
        """Add a rule and return the name it got."""
        name = self.reserve(hint)
        self.define(name, expression)
        return name

    def text(self, root: str) -> str:
        """Write the grammar out; `root` is the expression of the whole answer."""
        lines = [f"root ::= {root}"]
        lines.extend(f"{name} ::= {expression}" for name, expression in self._rules.items())
        return "\n".join(lines) + "\n"
