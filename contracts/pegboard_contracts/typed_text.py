"""Type text by a JSON schema: what XML-like tool formats need to make JSON arguments.

The rule, for text of which the schema says it is:

- a string and nothing else: the text, as it is;
- some types: the JSON value it spells, when that is of one of them (`True`, `False` and
  `None` spell values too), else the text as a string;
- nothing: the JSON value it spells, else the text as a string.
"""

from __future__ import annotations

import json
from typing import Any, cast

from pegboard_contracts.conversation import Tool
from pegboard_contracts.json_text import JsonScanner, JsonState, string_fragment
from pegboard_contracts.scanning import Sink

_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_LONGEST_PYTHON_TEXT = 64
_STRING = frozenset({"string"})
_DEEPEST = 16


class TypedText:
    """Turn the text of one argument into JSON, as early as its type is certain.

    A string is streamed; anything else waits for its end. Text that can no longer become
    JSON is certainly a string. One line break at the very end is dropped.
    """

    def __init__(self, types: frozenset[str], sink: Sink) -> None:
        """Expect one of these JSON types, any when empty; JSON goes to `sink` in fragments."""
        self._types = types
        self._sink = sink
        self._scanner = JsonScanner()
        self._held: list[str] = []
        self._held_length = 0
        self._break = ""
        self._begun = False
        self._is_string = types == _STRING
        if self._is_string:
            sink('"')

    def feed(self, text: str) -> None:
        """Take more of the text."""
        self._begun = True
        text = self._break + text
        self._break = "\n" if text.endswith("\n") else ""
        text = text[: len(text) - len(self._break)]
        if self._is_string:
            self._sink(string_fragment(text))
            return
        self._held.append(text)
        self._held_length += len(text)
        if not self._may_be_json(text):
            self._is_string = True
            self._sink('"' + string_fragment("".join(self._held)))
            self._held.clear()

    @property
    def at_line_start(self) -> bool:
        """Tell whether the text so far is empty or ends with a line break."""
        return bool(self._break) or not self._begun

    def finish(self) -> None:
        """Send what is left: the text has ended."""
        if self._is_string:
            self._sink('"')
            return
        text = "".join(self._held)
        spelt = self._spelt(text)
        self._sink('"' + string_fragment(text) + '"' if spelt is None else spelt)

    def _may_be_json(self, text: str) -> bool:
        used = self._scanner.feed(text)
        if self._scanner.state is JsonState.COMPLETE:
            return not text[used:].strip()
        if self._scanner.state is JsonState.OPEN:
            return True
        if self._held_length > _LONGEST_PYTHON_TEXT:
            return False
        start = "".join(self._held).strip()
        return any(word.startswith(start) for word in _PYTHON_WORDS)

    def _spelt(self, text: str) -> str | None:
        word = _PYTHON_WORDS.get(text.strip())
        if word is None:
            if self._scanner.finish() is not JsonState.COMPLETE:
                return None
            word = self._scanner.take().strip()
        return word if not self._types or _types_of(word) & self._types else None


def _types_of(word: str) -> frozenset[str]:
    """Name the schema types that a JSON text other than a string belongs to."""
    if word[0] in "{[":
        return frozenset({"object" if word[0] == "{" else "array"})
    if word in {"true", "false"}:
        return frozenset({"boolean"})
    if word == "null":
        return frozenset({"null"})
    if word[0] == '"':
        return frozenset()
    whole = float(word).is_integer() if len(word) < 300 else word.lstrip("-").isdigit()
    return frozenset({"number", "integer"} if whole else {"number"})


def argument_types(tool: Tool, argument: str) -> frozenset[str]:
    """Return the JSON types a tool's schema allows for an argument; empty when it says nothing."""
    root = tool.parameters or {}
    properties = _properties(root, root)
    return _schema_types(properties.get(argument), root, _DEEPEST)


def argument_names(tool: Tool) -> frozenset[str]:
    """Return the names of the arguments that a tool's schema declares."""
    root = tool.parameters or {}
    return frozenset(_properties(root, root))


def _properties(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    schema = _resolved(schema, root) or {}
    properties = schema.get("properties")
    return cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}


def _resolved(schema: object, root: dict[str, Any]) -> dict[str, Any] | None:
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict):
            return None
        known = cast("dict[str, Any]", schema)
        reference = known.get("$ref")
        if not isinstance(reference, str):
            return known
        schema = root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            schema = _member(schema, name)
    return None


def _member(schema: object, name: str) -> object:
    return cast("dict[str, Any]", schema).get(name) if isinstance(schema, dict) else None


def _schema_types(schema: object, root: dict[str, Any], depth: int) -> frozenset[str]:
    known = _resolved(schema, root)
    if known is None or depth == 0:
        return frozenset()
    named = known.get("type")
    if isinstance(named, str):
        return frozenset({named, "null"} if known.get("nullable") is True else {named})
    if isinstance(named, list):
        return frozenset(str(name) for name in cast("list[object]", named))
    values = [known["const"]] if "const" in known else known.get("enum")
    if isinstance(values, list) and values:
        return frozenset(_value_type(value) for value in cast("list[object]", values))
    for key in ("anyOf", "oneOf"):
        branches = _branches(known, key, root, depth)
        if branches and all(branches):
            return frozenset[str]().union(*branches)
    told = [types for types in _branches(known, "allOf", root, depth) if types]
    return told[0].intersection(*told[1:]) if told else frozenset()


def _branches(
    schema: dict[str, Any], key: str, root: dict[str, Any], depth: int
) -> list[frozenset[str]]:
    parts = schema.get(key)
    if not isinstance(parts, list):
        return []
    return [_schema_types(part, root, depth - 1) for part in cast("list[object]", parts)]


def _value_type(value: object) -> str:
    if isinstance(value, str):
        return "string"
    return next(iter(_types_of(json.dumps(value)) - {"number"}), "number")
