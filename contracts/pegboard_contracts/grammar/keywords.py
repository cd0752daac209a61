"""Which keywords a JSON schema uses."""

from __future__ import annotations

from typing import Any

from pegboard_contracts.grammar.merging import is_annotation, is_list, is_object

_VALUES = frozenset({"const", "default", "enum", "examples", "required"})
_SCHEMAS_BY_NAME = frozenset({"$defs", "definitions", "patternProperties", "properties"})


def keywords_of(schema: Any) -> set[str]:  # noqa: ANN401 - client data
    """Return the keywords that say what is valid, at any depth of a schema that compiles."""
    if is_list(schema):
        return set[str]().union(*map(keywords_of, schema))
    if not is_object(schema):
        return set()
    found = {name for name in schema if not is_annotation(name)}
    for name, part in schema.items():
        if name in _SCHEMAS_BY_NAME and is_object(part):
            found |= keywords_of(list(part.values()))
        elif name not in _VALUES:
            found |= keywords_of(part)
    return found
