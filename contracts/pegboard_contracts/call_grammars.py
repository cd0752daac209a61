"""The toolbox of asking for calls and guaranteeing them: a syntax and the tools' schemas.

A forced choice binds the whole answer: calls and nothing else. Strict tools under `auto`
bind from a call's opening text on: any text may come before, and then only a call that
fits. Objects are written without members that nobody declared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.errors import ApiError, invalid_request
from pegboard_contracts.generation import Constraint
from pegboard_contracts.grammar import GrammarBuilder, SchemaTranslator, literal
from pegboard_contracts.json_text import string_fragment

MOST_CALLS = 4
"""So many calls an answer to a forced choice may hold: some models never stop by themselves."""

_CALLS_OF_A_SHORT_ANSWER = 8
_ITEMS_FOR_A_CALL = 8
"""So many items of a list without a limit may take the room of one call.

Only a short answer limits them: what was cut within a list would be worth nothing.
"""

_INSTRUCTIONS = """\
You can call these functions, one JSON object a line:

{tools}

To call a function, write exactly this on lines of its own, with its name and arguments:

{form}

Then stop: the result comes in the next message. {when}"""
_PREFIX = 5
_SHAPING = ("properties", "required", "additionalProperties", "patternProperties", "$ref", "allOf")
_UNIONS = ("anyOf", "oneOf", "minProperties", "propertyNames", "enum", "const")


def arguments_document(tool: Tool) -> dict[str, Any]:
    """Return the schema of a tool's arguments; one that declares nothing allows only `{}`."""
    document: dict[str, Any] = {"type": "object", **(tool.parameters or {})}
    if not any(document.get(keyword) for keyword in (*_SHAPING, *_UNIONS)):
        document["additionalProperties"] = False
    return document


def unwritable(subject: str) -> ApiError:
    """Make the refusal of a name that would not survive in the model's syntax of calls."""
    message = (
        f"{subject} cannot be written in this model's syntax of calls, so that they cannot be "
        "guaranteed; use letters, digits, '_' and '-'."
    )
    return invalid_request(message, param="tools", code="name_not_enforceable")


def json_arguments(builder: GrammarBuilder, tool: Tool) -> tuple[str, list[str]]:
    """Return the expression of a tool's arguments as JSON, and the keywords it leaves open."""
    translator = SchemaTranslator(builder, arguments_document(tool))
    return translator.expression(), translator.unenforced


class CallSyntax(msgspec.Struct, frozen=True, kw_only=True):
    """Describe how a format writes calls.

    A call is `begin` with the tool's name for `{name}`, its arguments, and `end`; calls are
    separated by `between`, and all of them stand between `before` and `after`. `trigger` is
    the text that begins nothing but calls. A format without one gives `free_answer`: the
    expression of a whole answer that need not call, from the builder, the call's expression
    and whether several calls may be made. Without both, strict tools under `auto` are refused.
    `example` is what arguments look like, for instructions. `names` is the regular
    expression of the names that can be written, where those are not part of a JSON text:
    calls of others cannot be guaranteed and are refused.
    """

    begin: str
    end: str
    between: str
    before: str = ""
    after: str = ""
    trigger: str = ""
    example: str = '{"argument": "value"}'
    arguments: Callable[[GrammarBuilder, Tool], tuple[str, list[str]]] = json_arguments
    free_answer: Callable[[GrammarBuilder, str, bool], str] | None = None
    names: str | None = None

    def call(self, builder: GrammarBuilder, tool: Tool) -> str:
        """Return the expression of one call from the tool's name on."""
        if self.names is not None and re.fullmatch(self.names, tool.name) is None:
            raise unwritable(f"The name of tool '{tool.name}'")
        opening = string_fragment(tool.name) + self.begin.partition("{name}")[2]
        return f"{literal(opening)} {_arguments(self, builder, tool)}"

    @property
    def lead(self) -> str:
        """Return the text of a call before the tool's name."""
        return self.begin.partition("{name}")[0]


def free_text(*markers: str, without: str = "") -> str:
    """Return the expression of text that does not hold the beginning of a marker.

    The markers begin with the same character. So many characters as tell each apart are
    excluded (`</par` of `</parameter>`), with some rare text beside it (`<` before another
    `<`), and the characters of `without`.
    """
    first = markers[0][0]
    excluded = {marker[:_PREFIX] for marker in markers}
    begun = sorted({text[:size] for text in excluded for size in range(1, len(text))})
    barred = literal(without)[1:-1]
    forms = [f"[^{first}{barred}]"]
    for text in begun:
        nexts = {other[len(text)] for other in excluded if other.startswith(text)}
        forms.append(f"{literal(text)} [^{''.join(sorted({first, *nexts}))}{barred}]")
    return "(" + " | ".join(forms) + ")*"


def call_instructions(syntax: CallSyntax, tools: Sequence[Tool], choice: ToolChoice) -> str | None:
    """Return what `ToolFormat.instructions` is asked for, with the syntax shown."""
    offered = [tool for tool in tools if not choice.names or tool.name in choice.names]
    if choice.mode == "none" or not offered:
        return None
    begin = syntax.begin.replace("{name}", "function_name")
    return _INSTRUCTIONS.format(
        tools="\n".join(json.dumps(_described(tool), ensure_ascii=False) for tool in offered),
        form=f"{syntax.before}{begin}{syntax.example}{syntax.end}{syntax.after}",
        when="You must call a function now."
        if choice.mode == "required"
        else "Answer in words when no function helps.",
    )


def _described(tool: Tool) -> dict[str, Any]:
    described: dict[str, Any] = {"name": tool.name}
    if tool.description:
        described["description"] = tool.description
    described["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return described


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
        most = _most(choice) if parallel else 1
        return _forced(syntax, offered, most=most, items=_most_items(choice))
    if syntax.free_answer is not None:
        builder = GrammarBuilder()
        answer = syntax.free_answer(builder, _call(syntax, builder, offered), parallel)
        return Constraint(kind="ebnf", value=builder.text(answer))
    if not syntax.trigger:
        message = (
            "Strict tools cannot be guaranteed here unless a call is required, because nothing "
            "marks this model's calls: set 'tool_choice' to 'required' or leave out 'strict'."
        )
        raise invalid_request(message, param="tools", code="strict_not_enforceable")
    return _triggered(syntax, offered, parallel=parallel)


def _most(choice: ToolChoice) -> int:
    if len(choice.names) == 1:
        return 1
    return MOST_CALLS if choice.most_calls is None else max(1, min(MOST_CALLS, choice.most_calls))


def _most_items(choice: ToolChoice) -> int | None:
    if choice.most_calls is None or choice.most_calls > _CALLS_OF_A_SHORT_ANSWER:
        return None
    return choice.most_calls * _ITEMS_FOR_A_CALL


def _forced(
    syntax: CallSyntax, tools: Sequence[Tool], *, most: int, items: int | None
) -> Constraint:
    builder = GrammarBuilder(most_items=items)
    call = _call(syntax, builder, tools)
    further = _sequence([_literal(syntax.between), call])
    several = f"({further}){{0,{most - 1}}}" if most > 1 else ""
    parts = [_literal(syntax.before), call, several, _literal(syntax.after)]
    return Constraint(kind="ebnf", value=builder.text(_sequence(parts)))


def _triggered(syntax: CallSyntax, tools: Sequence[Tool], *, parallel: bool) -> Constraint:
    builder = GrammarBuilder()
    tag = {
        "type": "tag",
        "begin": syntax.before + syntax.lead,
        "content": {
            "type": "grammar",
            "grammar": builder.text(_any_call(syntax, builder, tools)),
        },
        "end": syntax.end + syntax.after,
    }
    form = {
        "type": "triggered_tags",
        "triggers": [syntax.trigger],
        "tags": [tag],
        "stop_after_first": not parallel,
    }
    value = msgspec.json.encode({"type": "structural_tag", "format": form}).decode()
    return Constraint(kind="structural_tag", value=value)


def _call(syntax: CallSyntax, builder: GrammarBuilder, tools: Sequence[Tool]) -> str:
    parts = [_literal(syntax.lead), _any_call(syntax, builder, tools), _literal(syntax.end)]
    return builder.rule("call", _sequence(parts))


def _any_call(syntax: CallSyntax, builder: GrammarBuilder, tools: Sequence[Tool]) -> str:
    forms = [builder.rule(tool.name, syntax.call(builder, tool)) for tool in tools]
    return forms[0] if len(forms) == 1 else "(" + " | ".join(forms) + ")"


def _literal(text: str) -> str:
    return literal(text) if text else ""


def _sequence(parts: Sequence[str]) -> str:
    return " ".join(part for part in parts if part)


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
