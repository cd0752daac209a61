"""Merge the parts of an `allOf` into one schema, where JSON schema allows it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeGuard

Schema = dict[str, Any]


def is_object(value: Any) -> TypeGuard[Schema]:  # noqa: ANN401 - client data
    """Tell whether a value from JSON is an object."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:  # noqa: ANN401 - client data
    """Tell whether a value from JSON is a list."""
    return isinstance(value, list)


ANNOTATIONS = frozenset(
    {
        "$anchor",
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "default",
        "definitions",
        "deprecated",
        "description",
        "discriminator",
        "example",
        "examples",
        "externalDocs",
        "readOnly",
        "title",
        "writeOnly",
        "xml",
    }
)
"""Keywords that say nothing about what is valid, in JSON schemas and in those of OpenAPI."""


def is_annotation(keyword: str) -> bool:
    """Tell a keyword that says nothing about what is valid, OpenAPI's `x-...` among them."""
    return keyword in ANNOTATIONS or keyword.startswith("x-")


_LARGER = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}
_SMALLER = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}
_BOTH = {"items", "propertyNames"}
_MAX_BRANCHES = 64


class ConflictError(ValueError):
    """Name the keyword whose two values cannot be made one, or say that nothing is left."""


def merge(left: Schema, right: Schema) -> Schema:
    """Return a schema that is valid exactly where both are.

    Properties stay in the order of `left`, then `right`. Raises `ConflictError` naming
    the keyword that stands in the way.
    """
    merged = dict(left)
    for keyword in right:
        if keyword in {"properties", "additionalProperties", "required"}:
            continue
        if keyword not in merged:
            merged[keyword] = right[keyword]
        elif merged[keyword] != right[keyword] and not is_annotation(keyword):
            merged[keyword] = _combine(keyword, left[keyword], right[keyword])
    _merge_objects(merged, left, right)
    return merged


def _combine(keyword: str, left: Any, right: Any) -> Any:  # noqa: ANN401 - any JSON value
    if keyword in _LARGER:
        return max(left, right)
    if keyword in _SMALLER:
        return min(left, right)
    if keyword in _BOTH:
        return {"allOf": [left, right]}
    special = _SPECIAL.get(keyword)
    if special is None:
        raise ConflictError(keyword)
    return special(left, right)


def _types(left: Any, right: Any) -> list[str]:  # noqa: ANN401 - checked by the translator
    first = [left] if isinstance(left, str) else list(left)
    second = [right] if isinstance(right, str) else list(right)
    common = [kind for kind in first if kind in second]
    if "number" in first and "integer" in second and "integer" not in first:
        common.append("integer")
    if "integer" in first and "number" in second and "integer" not in second:
        common.append("integer")
    if not common:
        raise ConflictError("type")
    return common


def _enums(left: list[Any], right: list[Any]) -> list[Any]:
    common = [value for value in left if value in right]
    if not common:
        raise ConflictError("enum")
    return common


def _multiples(left: Any, right: Any) -> Any:  # noqa: ANN401 - numbers, checked here
    if isinstance(left, int) and isinstance(right, int):
        return math.lcm(left, right)
    raise ConflictError("multipleOf")


def _branches(left: list[Any], right: list[Any]) -> list[Schema]:
    if len(left) * len(right) > _MAX_BRANCHES:
        raise ConflictError("anyOf")
    return [{"allOf": [first, second]} for first in left for second in right]


def _tuples(left: list[Any], right: list[Any]) -> list[Any]:
    if len(left) != len(right):
        raise ConflictError("prefixItems")
    return [{"allOf": [first, second]} for first, second in zip(left, right, strict=True)]


def _pattern_maps(left: Schema, right: Schema) -> Schema:
    merged = dict(left)
    for pattern, schema in right.items():
        merged[pattern] = {"allOf": [merged[pattern], schema]} if pattern in merged else schema
    return merged


_SPECIAL: dict[str, Callable[[Any, Any], Any]] = {
    "type": _types,
    "enum": _enums,
    "multipleOf": _multiples,
    "anyOf": _branches,
    "prefixItems": _tuples,
    "patternProperties": _pattern_maps,
    "uniqueItems": lambda left, right: bool(left or right),
}


def _merge_objects(merged: Schema, left: Schema, right: Schema) -> None:
    if "required" in left or "required" in right:
        names = [*left.get("required", []), *right.get("required", [])]
        merged["required"] = list(dict.fromkeys(names))
    if "properties" in left or "properties" in right:
        merged["properties"] = _properties(left, right)
    extras = [side["additionalProperties"] for side in (left, right) if _closes(side)]
    if False in extras:
        merged["additionalProperties"] = False
    elif extras:
        merged["additionalProperties"] = extras[0] if len(extras) == 1 else {"allOf": extras}


def _closes(side: Schema) -> bool:
    return side.get("additionalProperties", True) is not True


def _properties(left: Schema, right: Schema) -> Schema:
    first: Schema = left.get("properties", {})
    second: Schema = right.get("properties", {})
    properties: Schema = {}
    for name in dict.fromkeys([*first, *second]):
        parts = [_property(side, name) for side in (left, right)]
        if False in parts:
            properties[name] = False
        else:
            real = [part for part in parts if part is not True]
            properties[name] = {"allOf": real} if len(real) > 1 else (real or [True])[0]
    return properties


def _property(side: Schema, name: str) -> Any:  # noqa: ANN401 - a schema of any form
    if name in side.get("properties", {}):
        return side["properties"][name]
    return side.get("additionalProperties", True)
