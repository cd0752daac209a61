"""The toolbox of guaranteed calls whose strings stand as raw text between tags.

Raw text needs no escapes, so nothing but its tag tells where it ends, and a model that
goes on after a line break may never come to it. A guaranteed string therefore is one line,
unless its schema gives a sign that it may be a text of several: see `may_have_lines`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pegboard_contracts.call_grammars import arguments_document, free_text, unwritable
from pegboard_contracts.conversation import Tool
from pegboard_contracts.grammar import (
    GrammarBuilder,
    PatternError,
    SchemaTranslator,
    literal,
    pattern_expression,
)
from pegboard_contracts.grammar.builder import json_literal
from pegboard_contracts.grammar.schema_values import MAX_COUNTED_CHARACTERS, counts
from pegboard_contracts.grammar.string_formats import ENFORCED

_STRING_KEYWORDS = ("pattern", "format", "minLength", "maxLength")
_LENGTHS = ("minLength", "maxLength")
_LONGEST_LINE = 256
_LINES_FOR_AN_ITEM = 3
_NAME = re.compile(r"[^<>\n]{0,256}")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_CONTENT_KEYWORDS = ("contentMediaType", "contentEncoding", "contentSchema")
_TEXTS = frozenset(
    _WORD.findall(
        "article articles body code content contents csv css diff document documents essay html"
        " graphql javascript json letter line lines markdown multiline newline newlines"
        " paragraph paragraphs patch poem prompt prose python script scripts snippet snippets"
        " source sql story svg text texts transcript xml yaml"
    )
)
"""Words in a name, a title or a description that tell of text of several lines."""

_NAMES_OF_TEXTS = _TEXTS.union(
    _WORD.findall(
        "analysis answer bio caption changelog changes command commands comment comments config"
        " configuration context data definition desc description details diagram doc docs email"
        " example examples explanation feedback findings input instruction instructions log logs"
        " message messages note notes outline output payload plan readme reason reasoning"
        " rationale recipe replacement reply report response review shell solution spec"
        " specification stderr stdin stdout steps str string summary task template thinking"
        " thought thoughts todo todos"
    )
)
"""Words that tell of it in a name only."""


def raw_arguments(
    builder: GrammarBuilder, tool: Tool, member: Callable[[str, str], str], markers: Sequence[str]
) -> tuple[str, list[str]]:
    """Return the expression of all arguments of a tool, and the keywords it leaves open.

    `member` makes the expression of one argument from its name and its value's, which holds
    the line break before the closing tag; free text may leave that out. Required and
    optional ones come in the schema's order. Raw text holds none of the `markers`.
    Optional ones whose names would break their tag are left out. Raises `ApiError` 400
    where such a one is required, and as the translator does.
    """
    document = arguments_document(tool)
    checked = SchemaTranslator(GrammarBuilder(), document)
    checked.expression()  # refuses what is malformed, and knows what stays open at the top
    translator = SchemaTranslator(builder, document)
    found = translator.flat(document, "")
    line = builder.rule("line", free_text(*markers, without="\n"))
    lines = free_text(*markers)
    if builder.most_items is not None:
        lines = f'{line} ("\\n" {line}){{0,{builder.most_items * _LINES_FOR_AN_ITEM - 1}}}'
    values = _Values(translator, line=line, lines=builder.rule("lines", lines))
    declared = cast("dict[str, Any]", found.get("properties", {}))
    required = cast("list[str]", found.get("required", []))
    parts: list[str] = []
    for name in [*declared, *(name for name in required if name not in declared)]:
        if _NAME.fullmatch(name) is None:
            if name in required:
                raise unwritable(f"The required property '{name}'")
            continue
        values.name = name
        value = values.ended(declared.get(name, True), name)
        rule = builder.rule("argument", member(name, value))
        parts.append(rule if name in required else f"({rule})?")
    return " ".join(parts) or '""', checked.unenforced + translator.unenforced


def may_have_lines(name: str, schema: Mapping[str, Any]) -> bool:
    """Tell whether an argument may be text of several lines.

    It may when a word of its name, title or description says so (`content`, `patch`, "The
    new text"), when a keyword says what it holds (`contentMediaType`), or when it may be
    longer than a line is (`maxLength` above 256).
    """
    if any(keyword in schema for keyword in _CONTENT_KEYWORDS):
        return True
    longest = schema.get("maxLength")
    if isinstance(longest, int) and longest > _LONGEST_LINE:
        return True
    told = f"{schema.get('title', '')} {schema.get('description', '')}"
    return not (_words(name).isdisjoint(_NAMES_OF_TEXTS) and _words(told).isdisjoint(_TEXTS))


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


class _Values:
    """Write values the way `pegboard_contracts.typed_text` reads them.

    `line` and `lines` are the rules of free text; `name` is that of the argument.
    """

    def __init__(self, translator: SchemaTranslator, *, line: str, lines: str) -> None:
        self.name = ""
        self._translator = translator
        self._line = line
        self._lines = lines

    def ended(self, schema: Any, path: str) -> str:  # noqa: ANN401 - client data
        """Return the expression of one value and of the line break behind it."""
        value = self._expression(schema, path)
        return f'{value} "\\n"{"?" if value in (self._line, self._lines) else ""}'

    def _expression(self, schema: Any, path: str) -> str:  # noqa: ANN401 - client data
        if not isinstance(schema, dict):
            return self._translator.translate(schema, path)
        found = self._translator.flat(cast("dict[str, Any]", schema), path)
        if "enum" in found:
            return self._listed(cast("list[Any]", found["enum"]))
        for keyword in ("anyOf", "oneOf"):
            if keyword in found:
                rest = {key: value for key, value in found.items() if key != keyword}
                branches = [{"allOf": [rest, branch]} for branch in found[keyword]]
                return _any_of([self._expression(branch, path) for branch in branches])
        return self._typed(found, path)

    def _listed(self, values: list[Any]) -> str:
        return _any_of(
            [literal(value) if isinstance(value, str) else json_literal(value) for value in values]
        )

    def _typed(self, found: dict[str, Any], path: str) -> str:
        named = found.get("type")
        kinds: list[str] = [named] if isinstance(named, str) else list(named or ())
        if not kinds and any(keyword in found for keyword in _STRING_KEYWORDS):
            kinds = ["string"]
        if "string" not in kinds:
            return self._translator.translate(found, path)
        parts = [self._string(found, path)]
        others = [kind for kind in kinds if kind != "string"]
        if found.get("nullable") is True and "null" not in others:
            others.append("null")
        if others:
            parts.append(self._translator.translate({**found, "type": others}, path))
        return _any_of(parts)

    def _string(self, found: dict[str, Any], path: str) -> str:
        pattern = found.get("pattern")
        if pattern is None and found.get("format") in ENFORCED:
            pattern = f"^({ENFORCED[found['format']]})$"
        elif "format" in found:
            self._translator.report(path, "format")
        if pattern is not None:
            try:
                return f"({pattern_expression(pattern, json=False, search=True)})"
            except PatternError:
                self._translator.report(path, "pattern")
        low, high = counts(self._translator, found, _LENGTHS, path, MAX_COUNTED_CHARACTERS)
        if not low and high is None:
            return self._lines if may_have_lines(self.name, found) else self._line
        if high == 0:
            return '""'
        return rf"[^<\n]{{{low},{'' if high is None else high}}}"


def _any_of(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + " | ".join(parts) + ")"
