"""Expressions of arrays, strings and numbers in a JSON schema."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from pegboard_contracts.grammar import numbers, schema, string_formats
from pegboard_contracts.grammar.builder import PLAIN
from pegboard_contracts.grammar.merging import is_list, is_object
from pegboard_contracts.grammar.numbers import Bound
from pegboard_contracts.grammar.patterns import PatternError, pattern_expression

if TYPE_CHECKING:
    from pegboard_contracts.grammar.merging import Schema
    from pegboard_contracts.grammar.schema import SchemaTranslator

ARRAY_KEYWORDS = (
    "items",
    "additionalItems",
    "prefixItems",
    "minItems",
    "maxItems",
    "uniqueItems",
)
STRING_KEYWORDS = ("minLength", "maxLength", "pattern", "format")
NUMBER_KEYWORDS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
)

MAX_COUNTED_CHARACTERS = 64
"""Longest string that is counted by the grammar: beyond it every step becomes slow."""

MAX_COUNTED_ITEMS = 256
_MAX_MULTIPLES = 512
_PLAIN_FOR_ONE = 4


def count(translator: SchemaTranslator, found: Schema, keyword: str, path: str) -> int | None:
    """Return a keyword that counts; raises `ApiError` unless it is a natural number."""
    del translator
    value = found.get(keyword)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise schema.schema_error(f"has a {keyword} that is no natural number", path)
    return value


def counts(
    translator: SchemaTranslator, found: Schema, names: tuple[str, str], path: str, limit: int
) -> tuple[int, int | None]:
    """Return the bounds of a count, each within `limit`; what is beyond is reported."""
    low = count(translator, found, names[0], path) or 0
    high = count(translator, found, names[1], path)
    if high is not None and low > high:
        raise schema.schema_error(f"has {names[0]} above {names[1]}", path)
    if low > limit:
        translator.report(path, names[0])
        low = 0
    if high is not None and high > limit:
        translator.report(path, names[1])
        high = None
    return low, high


def repeated(item: str, low: int, high: int | None) -> str:
    """Return the expression of `item`s with commas between them, `low` to `high` of them."""
    if high == 0:
        return '""'
    more = f"(json_comma {item})"
    first = max(low, 1) - 1
    if high is None:
        rest = f"{more}*" if not first else f"{more}{{{first},}}"
    else:
        rest = f"{more}{{{first},{high - 1}}}" if high > 1 else ""
    whole = f"{item} {rest}".strip()
    return f"({whole})?" if low == 0 else whole


def array_expression(translator: SchemaTranslator, found: Schema, path: str) -> str:
    """Translate an array."""
    translator.builder.shared("json_comma")
    low, high = counts(translator, found, ("minItems", "maxItems"), path, MAX_COUNTED_ITEMS)
    if found.get("uniqueItems") is True and (high is None or high > 1):
        translator.report(path, "uniqueItems")
    prefix = found.get("prefixItems")
    items = found.get("items", True)
    if is_list(items):
        prefix, items = items, found.get("additionalItems", True)
    if prefix is not None:
        return translator.named("tuple", _tuple(translator, found, prefix, items, path))
    if items is False:
        if low:
            raise schema.schema_error("wants items and allows none", path)
        return '"[]"'
    item = translator.named("item", translator.translate(items, _below(path, "items")))
    high = with_room(translator, items, low, high)
    return translator.named("array", f'"[" {repeated(item, low, high)} "]"')


def with_room(translator: SchemaTranslator, items: Any, low: int, high: int | None) -> int | None:  # noqa: ANN401 - client data
    """Return the upper bound of a count, where the schema has none that of the builder."""
    most = translator.builder.most_items
    if high is not None or most is None:
        return high
    kind = items.get("type") if is_object(items) else None
    plain = isinstance(kind, str) and kind not in {"object", "array"}
    return max(low, most * _PLAIN_FOR_ONE if plain else most)


def _tuple(
    translator: SchemaTranslator,
    found: Schema,
    prefix: Any,  # noqa: ANN401 - client data
    items: Any,  # noqa: ANN401 - client data
    path: str,
) -> str:
    if not is_list(prefix):
        raise schema.schema_error("has prefixItems that are no list", path)
    low, high = counts(translator, found, ("minItems", "maxItems"), path, MAX_COUNTED_ITEMS)
    wanted = prefix if high is None else prefix[:high]
    parts = [
        translator.named("item", translator.translate(part, _below(path, f"prefixItems.{index}")))
        for index, part in enumerate(wanted)
    ]
    body = " json_comma ".join(parts)
    missing = low - len(parts)
    if missing > 0 or ("minItems" not in found and not parts):
        if items is False:
            raise schema.schema_error("wants more items than it allows", path)
        item = translator.named("item", translator.translate(items, _below(path, "items")))
        more = repeated(item, max(missing, 0), None if high is None else high - len(parts))
        body = f"{body} json_comma {more}" if parts else more
    return f'"[" {body} "]"'


def string_expression(translator: SchemaTranslator, found: Schema, path: str) -> str:
    """Translate a string."""
    builder = translator.builder
    pattern, form = found.get("pattern"), found.get("format")
    if pattern is None and isinstance(form, str):
        if form in string_formats.ENFORCED:
            pattern = f"^({string_formats.ENFORCED[form]})$"
        elif form in string_formats.NOT_ENFORCED:
            translator.report(path, "format")
    elif isinstance(form, str) and form in {*string_formats.ENFORCED, *string_formats.NOT_ENFORCED}:
        translator.report(path, "format")
    if pattern is not None:
        for keyword in ("minLength", "maxLength"):
            if count(translator, found, keyword, path) is not None:
                translator.report(path, keyword)
        return _patterned(translator, pattern, path)
    names = ("minLength", "maxLength")
    low, high = counts(translator, found, names, path, MAX_COUNTED_CHARACTERS)
    if not low and high is None:
        return builder.shared("json_string")
    quantity = f"{{{low},}}" if high is None else f"{{{low},{high}}}"
    if high == 0:
        return r'"\"\""'
    return translator.named("string", rf'"\"" {PLAIN}{quantity} "\""')


def _patterned(translator: SchemaTranslator, pattern: Any, path: str) -> str:  # noqa: ANN401 - client data
    if not isinstance(pattern, str):
        raise schema.schema_error("has a pattern that is no text", path)
    try:
        body = pattern_expression(pattern, json=True, search=True)
    except PatternError as error:
        if "cannot be enforced" not in str(error):
            raise schema.schema_error(f"has a bad pattern: {error}", path) from None
        translator.report(path, "pattern")
        return translator.builder.shared("json_string")
    return translator.named("string", rf'"\"" ({body}) "\""')


def number_expression(
    translator: SchemaTranslator, found: Schema, path: str, *, integer: bool
) -> str:
    """Translate a number or an integer."""
    low = _bound(found, "minimum", "exclusiveMinimum", path, larger=True)
    high = _bound(found, "maximum", "exclusiveMaximum", path, larger=False)
    step = _decimal(found, "multipleOf", path)
    if step is not None and step <= 0:
        raise schema.schema_error("has a multipleOf that is not above 0", path)
    if integer or (step is not None and step == step.to_integral_value()):
        return _integers(translator, low, high, step, path)
    if step is not None:
        translator.report(path, "multipleOf")
    if low.value is None and high.value is None:
        return translator.builder.shared("json_number")
    expression = numbers.number_range(low, high)
    if expression is None:
        raise schema.schema_error("has bounds with no number between them", path)
    return translator.named("number", expression)


def _integers(
    translator: SchemaTranslator, low: Bound, high: Bound, step: Decimal | None, path: str
) -> str:
    bottom = None if low.value is None else _ceiling(low)
    top = None if high.value is None else -_ceiling(Bound(-high.value, high.exclusive))
    if step is not None and step != 1:
        return _multiples(translator, bottom, top, step, path)
    if bottom is None and top is None:
        return translator.builder.shared("json_integer")
    expression = numbers.integer_range(bottom, top)
    if expression is None:
        raise schema.schema_error("has bounds with no integer between them", path)
    return translator.named("integer", expression)


def _multiples(
    translator: SchemaTranslator, low: int | None, high: int | None, step: Decimal, path: str
) -> str:
    width = int(step)
    if step != width:
        translator.report(path, "multipleOf")
    elif low is not None and high is not None and (high - low) // width <= _MAX_MULTIPLES:
        values = range(-(-low // width) * width, high + 1, width)
        if not values:
            raise schema.schema_error("has bounds with no multiple between them", path)
        return translator.named("multiple", " | ".join(f'"{value}"' for value in values))
    elif low is None and high is None and width in {2, 5, 10, 100, 1000}:
        return translator.named("multiple", _endings(width))
    else:
        translator.report(path, "multipleOf")
    expression = numbers.integer_range(low, high)
    if expression is None:
        raise schema.schema_error("has bounds with no integer between them", path)
    return translator.named("integer", expression)


def _endings(width: int) -> str:
    digits = {2: "[02468]", 5: "[05]"}.get(width, '"' + str(width)[1:] + '"')
    if width in {2, 5}:
        return f'"0" | "-"? ([1-9] [0-9]{{0,13}})? {digits}'
    return f'"0" | "-"? [1-9] [0-9]{{0,11}} {digits}'


def _ceiling(bound: Bound) -> int:
    value = bound.value or Decimal(0)
    whole = int(value.to_integral_value(rounding="ROUND_CEILING"))
    return whole + 1 if bound.exclusive and whole == value else whole


def _bound(found: Schema, inclusive: str, exclusive: str, path: str, *, larger: bool) -> Bound:
    soft = _decimal(found, inclusive, path)
    hard = found.get(exclusive)
    if isinstance(hard, bool):
        # Draft 4 wrote the exclusive bound as a flag on the inclusive one.
        return Bound(soft, exclusive=hard)
    strict = _decimal(found, exclusive, path)
    if strict is None:
        return Bound(soft)
    if soft is None or (strict >= soft if larger else strict <= soft):
        return Bound(strict, exclusive=True)
    return Bound(soft)


def _decimal(found: Schema, keyword: str, path: str) -> Decimal | None:
    value = found.get(keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise schema.schema_error(f"has a {keyword} that is no number", path)
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise schema.schema_error(f"has a {keyword} that is no number", path) from None
    if not number.is_finite() or abs(number) > Decimal("1e15"):
        raise schema.schema_error(f"has a {keyword} beyond 1e15", path)
    return number


def _below(path: str, step: str) -> str:
    return f"{path}.{step}" if path else step
