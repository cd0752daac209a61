"""The toolbox of guaranteed calls whose strings stand as raw text between tags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from pegboard_contracts.call_grammars import arguments_document, free_text
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


def raw_arguments(
    builder: GrammarBuilder, tool: Tool, member: Callable[[str, str], str], markers: Sequence[str]
) -> tuple[str, list[str]]:
    """Return the expression of all arguments of a tool, and the keywords it leaves open.

    `member` makes the expression of one argument from its name and its value's; required
    and optional ones come in the schema's order. Raw text holds none of the `markers`.
    Raises `ApiError` 400 as the translator does.
    """
    document = arguments_document(tool)
    checked = SchemaTranslator(GrammarBuilder(), document)
    checked.expression()  # refuses what is malformed, and knows what stays open at the top
    translator = SchemaTranslator(builder, document)
    found = translator.flat(document, "")
    values = _Values(translator, builder.rule("text", free_text(*markers)))
    declared = cast("dict[str, Any]", found.get("properties", {}))
    required = cast("list[str]", found.get("required", []))
    parts: list[str] = []
    for name in [*declared, *(name for name in required if name not in declared)]:
        value = values.expression(declared.get(name, True), name)
        rule = builder.rule("argument", member(name, value))
        parts.append(rule if name in required else f"({rule})?")
    return " ".join(parts) or '""', checked.unenforced + translator.unenforced


class _Values:
    """Write values the way `pegboard_contracts.typed_text` reads them."""

    def __init__(self, translator: SchemaTranslator, text: str) -> None:
        self._translator = translator
        self._text = text

    def expression(self, schema: Any, path: str) -> str:  # noqa: ANN401 - client data
        """Return the expression of one value."""
        if not isinstance(schema, dict):
            return self._translator.translate(schema, path)
        found = self._translator.flat(cast("dict[str, Any]", schema), path)
        if "enum" in found:
            return self._listed(cast("list[Any]", found["enum"]))
        for keyword in ("anyOf", "oneOf"):
            if keyword in found:
                rest = {key: value for key, value in found.items() if key != keyword}
                branches = [{"allOf": [rest, branch]} for branch in found[keyword]]
                return _any_of([self.expression(branch, path) for branch in branches])
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
            return self._text
        if high == 0:
            return '""'
        return rf"[^<\n]{{{low},{'' if high is None else high}}}"


def _any_of(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + " | ".join(parts) + ")"
