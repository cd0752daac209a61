"""Twenty sets of tools as clients write them: nested, listed, nameless, strange."""

from __future__ import annotations

from typing import Any

from pegboard_contracts.conversation import Tool


def tool(name: str, description: str, *required: str, **properties: Any) -> Tool:
    """Describe a function; all properties are required unless some are named."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(required) or list(properties),
    }
    return Tool(name=name, description=description, parameters=parameters)


def text(description: str = "", **more: Any) -> dict[str, Any]:
    return {"type": "string", **({"description": description} if description else {}), **more}


NUMBER = {"type": "number"}
WHOLE = {"type": "integer"}
FLAG = {"type": "boolean"}
WORDS = {"type": "array", "items": {"type": "string"}}
POINT = {
    "type": "object",
    "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
    "required": ["lat", "lon"],
}


def listed(items: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": most}


def one_of(*values: object) -> dict[str, Any]:
    return {"enum": list(values)}


WEATHER = tool("get_weather", "Tell the weather.", city=text(), unit=one_of("celsius", "kelvin"))
TIME = tool("get_time", "Tell the time.", zone=text("Time zone"))
PING = Tool(name="ping", description="Check that the service answers.")
EMPTY = Tool(name="list_users", parameters={"type": "object", "properties": {}})
MAIL = tool(
    "send_mail", "Send a mail.", "to", "subject", to=text(format="email"), subject=text(), cc=WORDS
)
ROUTE = tool("route", "Find a way.", start=POINT, end=POINT, mode=one_of("car", "bike", "foot"))
ORDER = tool(
    "order",
    "Order things.",
    customer={
        "type": "object",
        "properties": {"name": text(), "vip": FLAG},
        "required": ["name", "vip"],
    },
    items=listed(
        {
            "type": "object",
            "properties": {"sku": text(pattern="^[A-Z]{2}-[0-9]{3}$"), "count": WHOLE},
            "required": ["sku", "count"],
        },
        3,
    ),
)
SEARCH = tool("search", "Search.", "query", query=text(), limit={**WHOLE, "minimum": 1})
LIGHT = tool("set_light", "Set a lamp.", room=text(), level={**WHOLE, "minimum": 0, "maximum": 100})
STRASSE = tool("straße_suchen", "Sucht eine Straße.", größe=one_of("groß", "klein"), ort=text())
KANJI = tool("天気", "天気を教える", 都市=text("都市の名前"), 単位=one_of("摂氏", "華氏"))
NOTE = tool("save_note", "Save a note.", title=text(maxLength=24), tags=listed(text(), 3))
MATRIX = tool("solve", "Solve equations.", rows=listed(listed(NUMBER, 3), 2))
TREE = Tool(
    name="store_tree",
    description="Store a tree.",
    parameters={
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/node"}},
        "required": ["root"],
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "label": one_of("a", "b"),
                    "child": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/leaf"}]},
                },
                "required": ["label", "child"],
            },
            "leaf": {"type": "object", "properties": {"v": WHOLE}, "required": ["v"]},
        },
    },
)
SHAPE = Tool(
    name="draw",
    parameters={
        "type": "object",
        "properties": {
            "shape": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "circle"}, "r": NUMBER},
                        "required": ["kind", "r"],
                    },
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "square"}, "side": NUMBER},
                        "required": ["kind", "side"],
                    },
                ]
            }
        },
        "required": ["shape"],
    },
)
BOOK = tool(
    "book_flight",
    "Book a flight.",
    day=text(format="date"),
    seats={**WHOLE, "minimum": 1, "maximum": 9},
    cabin=one_of("economy", "business", None),
)
QUOTES = tool(
    "say", "Say it.", line=one_of('He said "no".', "back\\slash", "two\nlines", "</tool_call>")
)
MAYBE = tool(
    "remember", "Remember.", "key", key=text(), value={"type": ["string", "null"]}, ttl=WHOLE
)
DICT = tool(
    "set_env",
    "Set variables.",
    vars={
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "minProperties": 1,
        "maxProperties": 3,
    },
)
ALL = tool(
    "filter",
    "Filter.",
    rule={
        "allOf": [
            {
                "type": "object",
                "properties": {"field": one_of("age", "size")},
                "required": ["field"],
            },
            {"properties": {"above": {**WHOLE, "minimum": 10}}, "required": ["above"]},
        ]
    },
)

TOOL_SETS: dict[str, tuple[Tool, ...]] = {
    "one": (WEATHER,),
    "two": (WEATHER, TIME),
    "no parameters": (PING,),
    "empty object": (EMPTY, PING),
    "mail": (MAIL,),
    "nested objects": (ROUTE,),
    "list of objects": (ORDER,),
    "optional": (SEARCH, LIGHT),
    "bounds": (LIGHT,),
    "umlauts": (STRASSE,),
    "kanji": (KANJI, TIME),
    "lengths": (NOTE,),
    "list of lists": (MATRIX,),
    "own definitions": (TREE,),
    "alternatives": (SHAPE,),
    "formats": (BOOK,),
    "quotes": (QUOTES,),
    "nullable": (MAYBE,),
    "any keys": (DICT, ALL),
    "many": (WEATHER, TIME, PING, MAIL, SEARCH, LIGHT, NOTE, BOOK, ROUTE, DICT),
}
QUESTIONS = (
    "What is the weather in Oslo in celsius?",
    "Please do what you can with your functions for a customer named Ann.",
)
