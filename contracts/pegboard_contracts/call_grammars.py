"""The toolbox of guaranteed calls: a format's syntax and the tools' schemas as one constraint.

A forced choice binds the whole answer: calls and nothing else. Strict tools under `auto`
bind from a call's opening text on: any text may come before, and then only a call that
fits. Objects are written without members that nobody declared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.generation import Constraint
from pegboard_contracts.grammar import GrammarBuilder, SchemaTranslator, literal
from pegboard_contracts.json_text import string_fragment

MOST_CALLS = 8
"""So many calls an answer to a forced choice may hold: some models never stop by themselves."""

_SHAPING = ("properties", "required", "additionalProperties", "patternProperties", "$ref", "allOf")
_UNIONS = ("anyOf", "oneOf", "minProperties", "propertyNames", "enum", "const")


def arguments_document(tool: Tool) -> dict[str, Any]:
    """Return the schema of a tool's arguments; one that declares nothing allows only `{}`."""
    document: dict[str, Any] = {"type": "object", **(tool.parameters or {})}
    if not any(document.get(keyword) for keyword in (*_SHAPING, *_UNIONS)):
        document["additionalProperties"] = False
    return document


def json_arguments(builder: GrammarBuilder, tool: Tool) -> tuple[str, list[str]]:
    """Return the expression of a tool's arguments as JSON, and the keywords it leaves open."""
    translator = SchemaTranslator(builder, arguments_document(tool))
    return translator.expression(), translator.unenforced


class CallSyntax(msgspec.Struct, frozen=True, kw_only=True):
    """Describe how a format writes calls.

    A call is `begin` with the tool's name for `{name}`, its arguments, and `end`; calls are
    separated by `between`, and all of them stand between `before` and `after`. `trigger` is
    the text that begins nothing but calls; without one, strict tools under `auto` are refused.
    """

    begin: str
    end: str
    between: str
    before: str = ""
    after: str = ""
    trigger: str = ""
    arguments: Callable[[GrammarBuilder, Tool], tuple[str, list[str]]] = json_arguments

    def opening(self, tool: Tool) -> str:
        """Return the text from a call's beginning to its arguments."""
        return self.begin.replace("{name}", string_fragment(tool.name))


def guaranteed_calls(
    syntax: CallSyntax, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool
) -> Constraint | None:
    """Return the constraint that `ToolFormat.constraint` is asked for.

    Raises `ApiError` 400 for a schema that cannot be used, for a keyword of a strict tool
    that no grammar enforces, and for strict tools under `auto` without a trigger.
    """
    offered = [tool for tool in tools if not choice.names or tool.name in choice.names]
    strict = any(tool.strict for tool in offered)
    if not offered or choice.mode == "none" or not (strict or choice.mode == "required"):
        return None
    if choice.mode == "required":
        return _forced(syntax, offered, most=MOST_CALLS if parallel and not _named(choice) else 1)
    if not syntax.trigger:
        message = (
            "Strict tools cannot be guaranteed here unless a call is required, because nothing "
            "marks this model's calls: set 'tool_choice' to 'required' or leave out 'strict'."
        )
        raise invalid_request(message, param="tools", code="strict_not_enforceable")
    return _triggered(syntax, offered, parallel=parallel)


def _named(choice: ToolChoice) -> bool:
    return len(choice.names) == 1


def _forced(syntax: CallSyntax, tools: Sequence[Tool], *, most: int) -> Constraint:
    builder = GrammarBuilder()
    forms = [
        f"{literal(syntax.opening(tool))} {_arguments(syntax, builder, tool)} {literal(syntax.end)}"
        for tool in tools
    ]
    call = builder.rule("call", " | ".join(forms))
    parts = [_literal(syntax.before), call, _literal(syntax.after)]
    if most > 1:
        parts.insert(2, f"({_literal(syntax.between)} {call}){{0,{most - 1}}}")
    return Constraint(kind="ebnf", value=builder.text(" ".join(part for part in parts if part)))


def _literal(text: str) -> str:
    return literal(text) if text else ""


def _triggered(syntax: CallSyntax, tools: Sequence[Tool], *, parallel: bool) -> Constraint:
    tags: list[dict[str, Any]] = []
    for tool in tools:
        builder = GrammarBuilder()
        content = {"type": "grammar", "grammar": builder.text(_arguments(syntax, builder, tool))}
        begin = syntax.before + syntax.opening(tool)
        end = syntax.end + syntax.after
        tags.append({"type": "tag", "begin": begin, "content": content, "end": end})
    form = {
        "type": "triggered_tags",
        "triggers": [syntax.trigger],
        "tags": tags,
        "stop_after_first": not parallel,
    }
    value = msgspec.json.encode({"type": "structural_tag", "format": form}).decode()
    return Constraint(kind="structural_tag", value=value)


def _arguments(syntax: CallSyntax, builder: GrammarBuilder, tool: Tool) -> str:
    try:
        expression, unenforced = syntax.arguments(builder, tool)
    except ApiError as error:
        message = f"Tool '{tool.name}': {error.message}"
        raise invalid_request(message, param="tools", code=error.code) from error
    if unenforced and tool.strict:
        message = (
            f"Tool '{tool.name}' is strict, but this server cannot guarantee "
            f"{', '.join(unenforced[:5])} in its schema; leave that out, or 'strict'."
        )
        raise invalid_request(message, param="tools", code="strict_not_enforceable")
    return expression
