"""A hundred schemas written for the purpose, and some that no grammar can promise."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}


def shape(*optional: str, **properties: Schema) -> Schema:
    """Describe an object; properties are required unless they are named as optional."""
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def among(*values: object) -> Schema:
    return {"enum": list(values)}


def upto(most: int, items: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def within(low: float, high: float, kind: str = "integer") -> Schema:
    return {"type": kind, "minimum": low, "maximum": high}


def like(pattern: str) -> Schema:
    return {"type": "string", "pattern": pattern}


def form(name: str) -> Schema:
    return {"type": "string", "format": name}


def short(most: int) -> Schema:
    return {"type": "string", "maxLength": most}


_POINT = shape(lat=within(-90, 90, "number"), lon=within(-180, 180, "number"))
_PERSON = shape(name=TEXT, age=within(0, 120))
_LINKED: Schema = {
    "$defs": {
        "node": shape(value=WHOLE, next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})
    },
    "$ref": "#/$defs/node",
}
_SHAPES: Schema = {
    "oneOf": [
        shape(kind={"const": "circle"}, radius=NUMBER),
        shape(kind={"const": "square"}, side=NUMBER),
    ]
}
_MERGED: Schema = {
    "allOf": [
        {"type": "object", "properties": {"id": within(1, 999)}, "required": ["id"]},
        {"properties": {"tag": among("a", "b")}, "required": ["tag"]},
    ]
}

_BASES: dict[str, Schema] = {
    "person": _PERSON,
    "address": shape("unit", street=TEXT, unit=short(8), city=TEXT, code=like("^[0-9]{5}$")),
    "point": _POINT,
    "route": shape(start=_POINT, end=_POINT, mode=among("car", "bike", "foot")),
    "sentiment": shape(
        label=among("positive", "negative", "neutral"), score=within(0, 1, "number")
    ),
    "reasoned": shape(reasoning=TEXT, answer=among("A", "B", "C", "D")),
    "verdict": shape(spam=FLAG, why=short(40)),
    "tags": shape(title=TEXT, tags=upto(4, short(12), 1)),
    "invoice": shape(number=like("^INV-[0-9]{4}$"), total=within(0, 10000, "number"), paid=FLAG),
    "order": shape(
        customer=_PERSON, lines=upto(3, shape(sku=like("^[A-Z]{3}$"), count=within(1, 9)), 1)
    ),
    "event": shape(name=TEXT, day=form("date"), seats=within(1, 500)),
    "meeting": shape(start=form("date-time"), minutes={**within(15, 120), "multipleOf": 15}),
    "clock": shape(at=form("time"), zone=among("UTC", "CET")),
    "user": shape(login=like("^[a-z]{3,8}$"), id=form("uuid"), admin=FLAG),
    "host": shape(ip=form("ipv4"), port=within(1, 65535)),
    "version": shape(version=like(r"^\d{1,2}\.\d{1,2}\.\d{1,2}$"), stable=FLAG),
    "color": shape(hex=like("^#[0-9a-f]{6}$"), name=short(16)),
    "money": shape(amount=within(-1000, 1000, "number"), currency=among("EUR", "USD", "JPY")),
    "grade": shape(student=TEXT, grade={"enum": [1, 2, 3, 4, 5, 6]}),
    "mixed enum": shape(e=among('a"b', "x\ny", "é", 1, 1.5, True, None, {"k": [1]})),
    "constants": shape(v={"const": 1}, kind={"const": "x"}, nothing={"const": None}),
    "nullable": shape(nick={"type": ["string", "null"]}, age={"type": ["integer", "null"]}),
    "either": shape(id={"anyOf": [WHOLE, like("^[a-f0-9]{8}$")]}),
    "shapes": shape(shape=_SHAPES),
    "merged": _MERGED,
    "linked list": _LINKED,
    "dictionary": {
        "type": "object",
        "additionalProperties": WHOLE,
        "minProperties": 1,
        "maxProperties": 3,
    },
    "named keys": {
        "type": "object",
        "patternProperties": {"^k_[a-z]{1,4}$": FLAG},
        "additionalProperties": False,
        "maxProperties": 3,
    },
    "pair": {
        "type": "array",
        "prefixItems": [WHOLE, short(10)],
        "items": False,
        "minItems": 2,
    },
    "matrix": upto(2, upto(3, within(0, 9), 3), 2),
    "negative": shape(x=within(-5, -2), y=within(-0.5, 0.5, "number")),
    "open interval": shape(x={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
    "percent": shape(percent=within(0, 100), rounded=FLAG),
    "wide": shape(**{f"field_{index}": FLAG for index in range(12)}),
    "all optional": shape("a", "b", "c", a=TEXT, b=WHOLE, c=FLAG),
    "deep": shape(a=shape(b=shape(c=shape(d=shape(e=WHOLE))))),
    "words": shape(words=upto(5, like("^[a-z]{2,9}$"), 2)),
    "yes or no": shape(answer=among("yes", "no"), sure=within(1, 5)),
    "unicode names": shape(größe=WHOLE, 名前=short(10)),
    "strange names": shape(**{'a"b': WHOLE, "c d": FLAG, "e\\f": WHOLE}),
    "recipe": shape(
        name=short(30),
        minutes=within(1, 240),
        steps=upto(3, short(50), 1),
        vegan=FLAG,
    ),
    "weather": shape(city=short(20), celsius=within(-60, 60, "number"), sky=among("sun", "rain")),
    "http": shape(status=within(100, 599), method=among("GET", "PUT", "POST"), ok=FLAG),
    "range": shape(low=within(0, 49), high=within(50, 99)),
    "flags": {**shape(a=FLAG, b=FLAG), "additionalProperties": FLAG},
    "titles": {"title": "T", "description": "d", **shape(x=WHOLE), "examples": [{"x": 1}]},
    "old definitions": {
        "definitions": {"p": _PERSON},
        "type": "object",
        "properties": {"boss": {"$ref": "#/definitions/p"}},
        "required": ["boss"],
    },
    "lengths": shape(code={"type": "string", "minLength": 3, "maxLength": 6}, n=WHOLE),
    "letters": shape(grade=like("^[A-F][+-]?$"), passed=FLAG),
    "big integers": shape(id=within(10**9, 10**12)),
    "plain object": shape(meta=shape(at=WHOLE), data=upto(2, {"type": ["integer", "string"]})),
}

ENFORCED: dict[str, Schema] = {
    **_BASES,
    **{
        f"list of {name}": upto(2, base, 1)
        for name, base in _BASES.items()
        if not {"$ref", "definitions"} & set(base)
    },
    "list of linked list": {
        **_LINKED,
        "$ref": "#/$defs/list",
        "$defs": {**_LINKED["$defs"], "list": upto(2, {"$ref": "#/$defs/node"}, 1)},
    },
}

UNENFORCED: dict[str, tuple[Schema, str]] = {
    "unique": ({**upto(3, WHOLE), "uniqueItems": True}, "uniqueItems"),
    "not": ({"type": "integer", "not": {"const": 3}}, "not"),
    "condition": ({**_PERSON, "if": {"required": ["age"]}}, "if"),
    "contains": ({"type": "array", "contains": {"const": 1}}, "contains"),
    "long text": ({"type": "string", "minLength": 200}, "minLength"),
    "dependent": ({**_PERSON, "dependentRequired": {"name": ["age"]}}, "dependentRequired"),
    "overlapping oneOf": ({"oneOf": [WHOLE, NUMBER]}, "oneOf"),
    "look ahead": (like("^(?=a)b"), "pattern"),
    "json pointer": (form("json-pointer"), "format"),
}
