"""Translate JSON schemas into grammar rules.

What is written is always valid for the schema: properties in the schema's order, at most
one blank after a colon or comma, numbers within their bounds. What a grammar cannot
promise is collected in `SchemaTranslator.unenforced`, each with its path; the caller
refuses it, or accepts it and checks the finished text.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from pegboard_contracts.errors import ApiError
from pegboard_contracts.grammar import schema_objects, schema_values
from pegboard_contracts.grammar.builder import GrammarBuilder, json_literal
from pegboard_contracts.grammar.examples import GrammarReader
from pegboard_contracts.grammar.merging import (
    ConflictError,
    Schema,
    is_annotation,
    is_list,
    is_object,
    merge,
)

MAX_DEPTH = 64
MAX_RULES = 4000
MAX_BYTES = 256 * 1024
MAX_MERGES = 20_000

_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_TYPE_OF_KEYWORD = {
    **dict.fromkeys(schema_objects.KEYWORDS, "object"),
    **dict.fromkeys(schema_values.ARRAY_KEYWORDS, "array"),
    **dict.fromkeys(schema_values.STRING_KEYWORDS, "string"),
    **dict.fromkeys(schema_values.NUMBER_KEYWORDS, "number"),
}
_STRUCTURE = {"$ref", "allOf", "anyOf", "oneOf", "const", "enum", "type", "nullable"}


def schema_error(message: str, path: str = "") -> ApiError:
    """Make the 400 of a schema that cannot be used, with the place inside the schema."""
    where = f" (at {path})" if path else ""
    return ApiError(400, f"The JSON schema {message}{where}.", code="invalid_schema")


class SchemaTranslator:
    """Add the rules of one schema document to a grammar.

    Raises `ApiError` 400 `invalid_schema` for a schema that is malformed, matches nothing,
    refers to nothing, or is larger or deeper than the limits.
    """

    def __init__(self, builder: GrammarBuilder, document: Any) -> None:  # noqa: ANN401 - client data
        """Take the document that `$ref`s point into; nothing is translated yet."""
        try:
            size = len(json.dumps(document))
        except (RecursionError, ValueError):
            raise schema_error("nests too deeply or is not JSON") from None
        if size > MAX_BYTES:
            raise schema_error(f"is larger than {MAX_BYTES // 1024} KiB")
        self.builder = builder
        self.unenforced: list[str] = []
        self._document = document
        self._references: dict[str, str] = {}
        self._depth = 0
        self._merges = 0

    def expression(self) -> str:
        """Translate the whole document and return the expression of its values."""
        try:
            expression = self.translate(self._document, "")
            if self._references and not GrammarReader(self.builder.text(expression)).ends:
                raise schema_error("refers to itself so that no value would ever end")
        except (TypeError, AttributeError, KeyError, ValueError, RecursionError):
            # A keyword may hold any JSON; checking each before its use would drown the rest.
            raise schema_error("has a keyword of the wrong type") from None
        return expression

    def translate(self, schema: Any, path: str) -> str:  # noqa: ANN401 - client data
        """Translate one schema and return its expression; `path` is for messages."""
        if schema is True or schema == {}:
            return self.builder.shared("json_value")
        if schema is False:
            raise schema_error("allows no value", path)
        if not is_object(schema):
            raise schema_error("holds something that is neither an object nor a boolean", path)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise schema_error(f"nests deeper than {MAX_DEPTH}", path)
        if len(self.builder) > MAX_RULES:
            raise schema_error(f"needs more than {MAX_RULES} grammar rules", path)
        try:
            return self._translate(schema, path)
        finally:
            self._depth -= 1

    def report(self, path: str, keyword: str) -> None:
        """Remember a keyword that the grammar does not enforce."""
        entry = f"{path}.{keyword}" if path else keyword
        if entry not in self.unenforced:
            self.unenforced.append(entry)

    def named(self, hint: str, expression: str) -> str:
        """Give an expression a rule of its own."""
        return self.builder.rule(hint, expression)

    def _translate(self, schema: Schema, path: str) -> str:
        if isinstance(schema.get("$ref"), str) and _is_bare_reference(schema):
            return self._reference(schema["$ref"], path)
        schema = self.flat(schema, path)
        for keyword in schema:
            if not (is_annotation(keyword) or keyword in _STRUCTURE or keyword in _TYPE_OF_KEYWORD):
                self.report(path, keyword)
        if "const" in schema or "enum" in schema:
            return self._values(schema, path)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._union(schema, keyword, path)
        kinds = self._kinds(schema, path)
        parts = [self._typed(kind, schema, path) for kind in kinds]
        return parts[0] if len(parts) == 1 else "(" + " | ".join(parts) + ")"

    def _reference(self, reference: str, path: str) -> str:
        name = self._references.get(reference)
        if name is None:
            target = self.target(reference, path)
            hint = reference.rsplit("/", 1)[-1] or "document"
            name = self._references[reference] = self.builder.reserve(hint)
            seen = {reference}
            while is_object(target) and _is_bare_reference(target) and "$ref" in target:
                if target["$ref"] in seen:
                    raise schema_error("has a reference that leads back to itself", path)
                seen.add(target["$ref"])
                target = self.target(target["$ref"], path)
            self.builder.define(name, self.translate(target, reference))
        return name

    def target(self, reference: Any, path: str) -> Any:  # noqa: ANN401 - client data
        """Return what a `$ref` points to inside the document."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise schema_error("refers outside itself; put the definition under $defs", path)
        if reference[1:2] not in {"", "/"}:
            raise schema_error("refers to an anchor; refer to '#/$defs/...' instead", path)
        node = self._document
        for step in unquote(reference[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if is_object(node) and key in node:
                node = node[key]
            elif is_list(node) and key.isdigit() and int(key) < len(node):
                node = node[int(key)]
            else:
                raise schema_error("refers to a definition that does not exist", path)
        return node

    def flat(self, schema: Schema, path: str, seen: frozenset[str] = frozenset()) -> Schema:
        """Return the schema with its `$ref` and `allOf` merged into it."""
        self._merges += 1
        if len(seen) > MAX_DEPTH or self._merges > MAX_MERGES:
            raise schema_error("merges too many references and parts", path)
        rest = dict(schema)
        if "const" in rest and "enum" not in rest:
            rest["enum"] = [rest.pop("const")]
        parts = rest.pop("allOf", [])
        if not is_list(parts):
            raise schema_error("has an allOf that is no list", path)
        if "$ref" in rest:
            reference = rest.pop("$ref")
            if reference in seen:
                raise schema_error("has a reference that leads back to itself", path)
            seen |= {reference}
            parts = [self.target(reference, path), *parts]
        for part in parts:
            rest = self._merged(rest, part, path, seen)
        return rest

    def _merged(self, whole: Schema, part: Any, path: str, seen: frozenset[str]) -> Schema:  # noqa: ANN401 - client data
        if part is True:
            return whole
        if not is_object(part):
            raise schema_error("allows no value in allOf", path)
        try:
            return merge(whole, self.flat(part, path, seen))
        except ConflictError as conflict:
            if str(conflict) in {"type", "enum"}:
                raise schema_error("allows no value in allOf", path) from None
            self.report(path, f"allOf.{conflict}")
        except (TypeError, AttributeError):
            raise schema_error("has a keyword of the wrong type", path) from None
        return whole

    def _values(self, schema: Schema, path: str) -> str:
        values = schema.get("enum", [schema.get("const")])
        if not is_list(values) or not values:
            raise schema_error("has an enum that is no list of values", path)
        kinds = self._declared_kinds(schema, path)
        fitting = [value for value in values if kinds is None or _fits(value, kinds)]
        if not fitting:
            raise schema_error("has no enum value of its type", path)
        for keyword in schema:
            if keyword in _TYPE_OF_KEYWORD or keyword in {"anyOf", "oneOf"}:
                self.report(path, keyword)
        return "(" + " | ".join(json_literal(value) for value in fitting) + ")"

    def _union(self, schema: Schema, keyword: str, path: str) -> str:
        branches = schema[keyword]
        if not is_list(branches) or not branches:
            raise schema_error(f"has a {keyword} that is no list of schemas", path)
        base = {key: value for key, value in schema.items() if key != keyword}
        has_base = not all(map(is_annotation, base))
        parts: list[str] = []
        kept: list[Any] = []
        for index, branch in enumerate(branches):
            where = f"{path}.{keyword}.{index}" if path else f"{keyword}.{index}"
            if branch is False:
                continue
            whole = {"allOf": [base, branch]} if has_base else branch
            parts.append(self.named("branch", self.translate(whole, where)))
            kept.append(branch)
        if not parts:
            raise schema_error("allows no value", path)
        if keyword == "oneOf" and not self._disjoint(kept, path):
            self.report(path, "oneOf")
        return "(" + " | ".join(parts) + ")"

    def _disjoint(self, branches: list[Any], path: str) -> bool:
        flats = [self.flat(b, path) if is_object(b) else {} for b in branches]
        return all(
            self._apart(first, second, path)
            for index, first in enumerate(flats)
            for second in flats[index + 1 :]
        )

    def _apart(self, first: Schema, second: Schema, path: str) -> bool:
        kinds = [self._kinds_or_enum(schema, path) for schema in (first, second)]
        if kinds[0] and kinds[1] and not (kinds[0] & kinds[1]):
            return True
        if "enum" in first and "enum" in second:
            return not any(value in second["enum"] for value in first["enum"])
        shared = set(first.get("required", ())) & set(second.get("required", ()))
        for name in shared:
            sides = [schema.get("properties", {}).get(name) for schema in (first, second)]
            if all(is_object(side) for side in sides):
                flats = [self.flat(side, path) for side in sides if side]
                if len(flats) == 2 and self._apart(flats[0], flats[1], path):
                    return True
        return False

    def _kinds_or_enum(self, schema: Schema, path: str) -> set[str]:
        kinds = self._declared_kinds(schema, path)
        if kinds is None and "enum" in schema:
            kinds = [kind for kind in _TYPES if any(_fits(v, [kind]) for v in schema["enum"])]
        found = set(kinds or ())
        return found | {"integer"} if "number" in found else found

    def _declared_kinds(self, schema: Schema, path: str) -> list[str] | None:
        kinds = schema.get("type")
        if kinds is None:
            return None
        found: list[Any] = [kinds] if isinstance(kinds, str) else kinds
        if not is_list(found) or not found or any(kind not in _TYPES for kind in found):
            raise schema_error("has an unknown type", path)
        if schema.get("nullable") is True and "null" not in found:
            found = [*found, "null"]
        return [str(kind) for kind in found]

    def _kinds(self, schema: Schema, path: str) -> list[str]:
        declared = self._declared_kinds(schema, path)
        if declared is not None:
            return declared
        implied = {_TYPE_OF_KEYWORD[key] for key in schema if key in _TYPE_OF_KEYWORD}
        return [kind for kind in _TYPES if kind in implied] or ["any"]

    def _typed(self, kind: str, schema: Schema, path: str) -> str:
        if kind == "any":
            return self.builder.shared("json_value")
        if kind in {"boolean", "null"}:
            return self.builder.shared(f"json_{kind}")
        if kind == "object":
            return schema_objects.object_expression(self, schema, path)
        if kind == "array":
            return schema_values.array_expression(self, schema, path)
        if kind == "string":
            return schema_values.string_expression(self, schema, path)
        return schema_values.number_expression(self, schema, path, integer=kind == "integer")


def _is_bare_reference(schema: Schema) -> bool:
    return all(key == "$ref" or is_annotation(key) for key in schema)


def _fits(value: Any, kinds: list[str]) -> bool:  # noqa: ANN401 - any JSON value
    if isinstance(value, bool):
        return "boolean" in kinds
    if value is None:
        return "null" in kinds
    if isinstance(value, str):
        return "string" in kinds
    if is_object(value):
        return "object" in kinds
    if is_list(value):
        return "array" in kinds
    whole = isinstance(value, int) or float(value).is_integer()
    return "number" in kinds or ("integer" in kinds and whole)
