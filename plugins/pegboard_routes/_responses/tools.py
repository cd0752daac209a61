"""Tools and the choice among them, in every form that clients send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from pegboard_contracts.conversation import Tool, ToolChoice
from pegboard_contracts.errors import ApiError, invalid_request

from pegboard_routes._responses.response_object import FunctionToolEcho

UnsupportedTools = Literal["reject", "ignore"]
_MODES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
}


class OfferedTools(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the function tools of a request, as the model and as the client see them."""

    tools: tuple[Tool, ...] = ()
    echo: list[FunctionToolEcho] = []
    choice: ToolChoice = ToolChoice()
    choice_echo: str | dict[str, Any] = "auto"

    @property
    def namespaces(self) -> dict[str, str]:
        """Map the names of tools that came inside a namespace to it."""
        return {tool.name: tool.namespace for tool in self.tools if tool.namespace}


def offered_tools(
    given: Sequence[Mapping[str, Any]],
    choice: object,
    *,
    unsupported: UnsupportedTools,
) -> OfferedTools:
    """Read tools and choice.

    Raises `ApiError` 400 for a tool that is no function, unless those are ignored, for a
    choice that cannot be made, and for a forced call of nothing.
    """
    tools: list[Tool] = []
    for index, tool in enumerate(given):
        tools += _read(tool, f"tools.{index}", unsupported)
    names = {tool.name for tool in tools}
    wanted = _choice(choice)
    if not names.issuperset(wanted.names):
        raise _bad_choice("'tool_choice' names a function that is not among 'tools'.")
    if wanted.mode == "required" and not names:
        raise _bad_choice("'tool_choice' asks for a call; give function 'tools'.")
    return OfferedTools(
        tools=tuple(tools),
        echo=[_echo(tool) for tool in tools],
        choice=wanted,
        choice_echo=_choice_echo(choice, wanted),
    )


def _read(
    tool: Mapping[str, Any],
    path: str,
    unsupported: UnsupportedTools,
    namespace: str | None = None,
) -> list[Tool]:
    kind = tool.get("type", "function")
    if kind == "function":
        return [_function(tool, path, namespace)]
    if unsupported == "reject":
        shown = kind[:40] if isinstance(kind, str) else "unknown"
        message = (
            f"Tools of type '{shown}' cannot run on this server; offer function tools only, or "
            "start it with --unsupported-tools ignore."
        )
        raise invalid_request(message, param=f"{path}.type", code="unsupported_tool")
    inner = tool.get("tools")
    if kind != "namespace" or not isinstance(inner, list):
        return []
    name = tool.get("name")
    found: list[Tool] = []
    for index, one in enumerate(cast("list[object]", inner)):
        if isinstance(one, dict):
            where = f"{path}.tools.{index}"
            space = name if isinstance(name, str) else None
            found += _read(cast("dict[str, Any]", one), where, unsupported, space)
    return found


def _function(tool: Mapping[str, Any], path: str, namespace: str | None) -> Tool:
    nested = tool.get("function")
    fields = cast("Mapping[str, Any]", nested) if isinstance(nested, dict) else tool
    name, parameters = fields.get("name"), fields.get("parameters")
    description, strict = fields.get("description"), fields.get("strict")
    if not isinstance(name, str) or not 1 <= len(name) <= 128:
        message = "A function tool needs a 'name' of 1 to 128 characters."
        raise invalid_request(message, param=f"{path}.name", code="invalid_value")
    if parameters is not None and not isinstance(parameters, dict):
        message = "'parameters' must be a JSON schema, an object."
        raise invalid_request(message, param=f"{path}.parameters", code="invalid_value")
    if description is not None and not isinstance(description, str):
        message = "'description' must be a string."
        raise invalid_request(message, param=f"{path}.description", code="invalid_value")
    if strict is not None and not isinstance(strict, bool):
        message = "'strict' must be true or false."
        raise invalid_request(message, param=f"{path}.strict", code="invalid_value")
    return Tool(
        name=name,
        description=description,
        parameters=cast("dict[str, Any] | None", parameters),
        strict=bool(strict),
        namespace=namespace,
    )


def _echo(tool: Tool) -> FunctionToolEcho:
    return FunctionToolEcho(tool.name, tool.description, tool.parameters, tool.strict)


def _bad_choice(message: str) -> ApiError:
    return invalid_request(message, param="tool_choice", code="invalid_value")


def _choice(given: object) -> ToolChoice:
    if given is None:
        return ToolChoice()
    if isinstance(given, str):
        if given not in _MODES:
            raise _bad_choice("'tool_choice' is 'auto', 'none', 'required' or an object.")
        return ToolChoice(mode=_MODES[given])
    choice = cast("dict[str, Any]", given)
    if choice.get("type") != "allowed_tools":
        return ToolChoice(mode="required", names=(_chosen_name(choice),))
    nested = choice.get("allowed_tools")
    allowed = cast("dict[str, Any]", nested) if isinstance(nested, dict) else choice
    tools, mode = allowed.get("tools"), allowed.get("mode")
    if not isinstance(tools, list) or not tools:
        raise _bad_choice("'allowed_tools' needs a list 'tools' that is not empty.")
    if not isinstance(mode, str) or mode not in ("auto", "required"):
        raise _bad_choice("The mode of 'allowed_tools' is 'auto' or 'required'.")
    names = tuple(_chosen_name(tool) for tool in cast("list[object]", tools))
    return ToolChoice(mode=_MODES[mode], names=names)


def _chosen_name(given: object) -> str:
    choice = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    kind = choice.get("type")
    nested = choice.get("function")
    fields = cast("dict[str, Any]", nested) if isinstance(nested, dict) else choice
    name = fields.get("name")
    if kind != "function" or not isinstance(name, str):
        shown = f" '{kind[:40]}'" if isinstance(kind, str) and kind != "function" else ""
        raise _bad_choice(
            f"A tool{shown} cannot be chosen here; name a function: "
            '{"type": "function", "name": ...}.'
        )
    return name


def _choice_echo(given: object, choice: ToolChoice) -> str | dict[str, Any]:
    if not choice.names:
        return choice.mode
    functions = [{"type": "function", "name": name} for name in choice.names]
    if cast("dict[str, Any]", given).get("type") == "allowed_tools":
        return {"type": "allowed_tools", "mode": choice.mode, "tools": functions}
    return dict(functions[0])
