"""Expressions of objects in a JSON schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pegboard_contracts.grammar import schema, schema_values
from pegboard_contracts.grammar.builder import PLAIN, json_literal, literal
from pegboard_contracts.grammar.merging import is_list, is_object
from pegboard_contracts.grammar.patterns import PatternError, pattern_expression

if TYPE_CHECKING:
    from pegboard_contracts.grammar.merging import Schema
    from pegboard_contracts.grammar.schema import SchemaTranslator

KEYWORDS = (
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
)
_MAX_COUNTED = 64
_MAX_PROPERTIES = 512


def object_expression(translator: SchemaTranslator, found: Schema, path: str) -> str:
    """Translate an object: declared properties in their order, then further ones."""
    for shared in ("json_comma", "json_colon"):
        translator.builder.shared(shared)
    properties, required = _declared(found, path)
    _check_patterns(translator, found, properties, path)
    further = _further(translator, found, properties, path)
    if not properties:
        low, high = schema_values.counts(
            translator, found, ("minProperties", "maxProperties"), path, _MAX_COUNTED
        )
        if further is None:
            if low:
                raise schema.schema_error("wants properties and allows none", path)
            return '"{}"'
        high = schema_values.with_room(translator, True, low, high)
        members = schema_values.repeated(further, low, high)
        return translator.named("object", f'"{{" {members} "}}"')
    _check_counts(translator, found, len(properties), len(required), path)
    members = _members(translator, properties, required, further, path)
    return translator.named("object", f'"{{" {members} "}}"')


def _declared(found: Schema, path: str) -> tuple[dict[str, Any], set[str]]:
    properties = found.get("properties", {})
    required = found.get("required", [])
    if not is_object(properties):
        raise schema.schema_error("has properties that are no object", path)
    if not is_list(required) or any(not isinstance(name, str) for name in required):
        raise schema.schema_error("has a required that is no list of names", path)
    if len(properties) > _MAX_PROPERTIES:
        raise schema.schema_error(f"has more than {_MAX_PROPERTIES} properties in one object", path)
    extra = found.get("additionalProperties", True)
    declared = {name: part for name, part in properties.items() if part is not False}
    for name in required:
        if name in declared:
            continue
        if name in properties or (extra is False and not found.get("patternProperties")):
            raise schema.schema_error("requires a property that it does not allow", path)
        declared[name] = extra is False or extra
    return declared, set(required)


def _check_patterns(
    translator: SchemaTranslator, found: Schema, declared: dict[str, Any], path: str
) -> None:
    """Report `patternProperties` that may say more about members with names of their own."""
    patterns = found.get("patternProperties")
    if patterns is not None and not is_object(patterns):
        raise schema.schema_error("has patternProperties that are no object", path)
    if not patterns or not declared:
        return
    allowing = found.get("additionalProperties") is False and len(declared) > len(
        found.get("properties", {})
    )
    if allowing or any(part is not True and part != {} for part in patterns.values()):
        # Whether a name fits is not tried: a pattern of a client could take forever.
        translator.report(path, "patternProperties")


def _check_counts(
    translator: SchemaTranslator, found: Schema, declared: int, required: int, path: str
) -> None:
    low = schema_values.count(translator, found, "minProperties", path)
    high = schema_values.count(translator, found, "maxProperties", path)
    if low is not None and low > required:
        translator.report(path, "minProperties")
    open_ended = is_object(found.get("additionalProperties"))
    if high is not None and (high < declared or open_ended):
        translator.report(path, "maxProperties")


def _further(
    translator: SchemaTranslator, found: Schema, properties: dict[str, Any], path: str
) -> str | None:
    """Return the expression of one undeclared member, or nothing when none is written."""
    patterns = found.get("patternProperties")
    extra = found.get("additionalProperties", True)
    if patterns and not properties:
        if len(patterns) > 1 or "propertyNames" in found:
            translator.report(path, "patternProperties")
        pattern, part = next(iter(patterns.items()))
        key = _pattern_key(translator, pattern, path)
        return _member(translator, key, part, f"{path}.patternProperties".strip("."))
    if properties and (extra is True or extra is False):
        # Members nobody declared are allowed to be left out: less to go wrong.
        return None
    if extra is False:
        return None
    key = _free_key(translator, found, list(properties), path)
    return _member(translator, key, extra, f"{path}.additionalProperties".strip("."))


def _member(translator: SchemaTranslator, key: str, part: Any, path: str) -> str:  # noqa: ANN401 - client data
    value = translator.translate(part, path)
    return translator.named("member", f"{key} json_colon {value}")


def _free_key(translator: SchemaTranslator, found: Schema, declared: list[str], path: str) -> str:
    names = found.get("propertyNames")
    if names is not None and names is not True:
        if declared:
            translator.report(path, "propertyNames")
        else:
            wanted = {"type": "string", **names} if is_object(names) else names
            return translator.translate(wanted, f"{path}.propertyNames".strip("."))
    if declared:
        return translator.named("key", rf'"\"" {_other_than(translator, declared)} "\""')
    return translator.builder.shared("json_string")


def _pattern_key(translator: SchemaTranslator, pattern: str, path: str) -> str:
    try:
        body = pattern_expression(pattern, json=True, search=True)
    except PatternError:
        translator.report(path, "patternProperties")
        return translator.builder.shared("json_string")
    return translator.named("key", rf'"\"" ({body}) "\""')


def _other_than(translator: SchemaTranslator, names: list[str]) -> str:
    """Match the inside of a JSON string that is none of `names`, by walking their letters."""
    translator.builder.shared("json_chars")
    plain = [name for name in names if json.dumps(name, ensure_ascii=False) == f'"{name}"']
    return _walk(translator, sorted(set(plain)), "")


def _walk(translator: SchemaTranslator, names: list[str], prefix: str) -> str:
    nexts = sorted({name[len(prefix)] for name in names if len(name) > len(prefix)})
    excluded = "".join(f"\\{char}" if char in "\\]-^[" else char for char in nexts)
    parts = [rf'[^"\\\x00-\x1f\x7f{excluded}] json_chars']
    for char in nexts:
        below = [name for name in names if name.startswith(prefix + char)]
        parts.append(f"{literal(char)} {_walk(translator, below, prefix + char)}")
    if prefix and prefix not in names:
        parts.append('""')
    if prefix in names and not nexts:
        parts = [f"{PLAIN} json_chars"]
    return translator.named("other", " | ".join(parts))


def _members(
    translator: SchemaTranslator,
    properties: dict[str, Any],
    required: set[str],
    further: str | None,
    path: str,
) -> str:
    """Chain the members from the last to the first, so that the grammar grows linearly.

    `after` is what may follow once something stands, `opening` what may come first.
    """
    after = f"(json_comma {further})*" if further else '""'
    opening = f"({further} (json_comma {further})*)?" if further else '""'
    for name in reversed(properties):
        where = f"{path}.properties.{name}".strip(".")
        value = translator.translate(properties[name], where)
        member = translator.named("member", f"{json_literal(name)} json_colon {value}")
        rest = translator.named("rest", after) if after != '""' else ""
        if name in required:
            opening = f"{member} {rest}".strip()
            after = f"json_comma {member} {rest}".strip()
        else:
            skipped = translator.named("opening", opening) if opening != '""' else '""'
            opening = f"({member} {rest}".strip() + f" | {skipped})"
            after = f"(json_comma {member})? {rest}".strip()
    return opening
