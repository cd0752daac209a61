"""What a chat template can take, found out by rendering small probes.

Reading a template's text tells little: templates raise, drop what they do not know, or
print Python literals. So each question is a short conversation with words that stand
nowhere else; the answer is whether those words come out. The answers are kept for each
template. A template that renders none of the probes, or loops in one, is given everything
unchanged, and the request shows what it says.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

import msgspec
from pegboard_contracts.errors import ApiError

from pegboard_kernel.templates.environment import ChatTemplate, chat_template
from pegboard_kernel.templates.limits import OutOfTimeError

_Message = dict[str, Any]

_LONG_ID = "call_0123456789abcdefghijklmn"
_SHORT_ID = "abcde1234"
_ARGUMENTS = {"probekey": "probevalue"}
_ARGUMENTS_TEXT = '{"probekey": "probevalue"}'
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_MEDIA = ("image", "audio", "video")


class CallStyle(msgspec.Struct, frozen=True, kw_only=True):
    """Say how a template takes tool calls and results.

    `blank` is the content of an assistant turn that only calls. `short_ids`: call ids
    must be nine letters and digits. `parallel`: one turn may hold several calls.
    `text_beside` and `reasoning_beside_text`: calls come out next to text, and next to
    text with reasoning. `question_after_result`: the user may speak before the answer.
    """

    blank: str | None = None
    arguments: Literal["object", "string"] = "object"
    short_ids: bool = False
    parallel: bool = True
    text_beside: bool = True
    reasoning_beside_text: bool = True
    question_after_result: bool = True


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Say what one template takes; the defaults are a template that takes everything.

    `part_roles` are the roles whose content must be a list of parts. `any_system`: system
    messages come out wherever and however often they stand. `repeated_roles`: two turns
    of one role may follow each other. `calls` `None`: calls and results do not come out.
    `tools`: a tool's name comes out; `bare_tools`: even one without description and
    parameters. `system_tools`: tools are JSON text in the system message's `tools`.
    `no_tools` is the value of `tools` when there are none.
    """

    part_roles: frozenset[str] = frozenset()
    media: frozenset[str] = frozenset()
    system: bool = True
    any_system: bool = True
    repeated_roles: bool = True
    calls: CallStyle | None = CallStyle()
    reasoning_key: str | None = "reasoning_content"
    tools: bool = True
    bare_tools: bool = True
    system_tools: bool = False
    no_tools: list[Any] | None = None


@lru_cache(maxsize=64)
def capabilities_of(text: str, bos_token: str, eos_token: str) -> Capabilities:
    """Return what a template can take; probed once, about twenty renderings.

    Raises `ApiError` 400 when the template does not compile.
    """
    try:
        capabilities = _Prober(chat_template(text), bos_token, eos_token).probe()
    except OutOfTimeError:
        capabilities = None
    return capabilities or Capabilities(tools="tools" in text)


class _Prober:
    """Ask one template, each answer building on those before it."""

    def __init__(self, template: ChatTemplate, bos_token: str, eos_token: str) -> None:
        self._template = template
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._part_roles: set[str] = set()
        self._no_tools: list[Any] | None = None
        self._opening: list[_Message] = []

    def probe(self) -> Capabilities | None:
        """Ask everything; `None` when not even a question comes out."""
        if not self._find_user_shape():
            return None
        system = self._find_shape("system", [self._say("user", "probeuser")])
        assistant = self._find_shape("assistant", [], [self._say("user", "probeuser")])
        calls = self._find_calls() if assistant else None
        reasoning_key = self._find_reasoning_key(calls)
        if calls and reasoning_key and not self._takes_reasoning_beside(calls, reasoning_key):
            calls = msgspec.structs.replace(calls, reasoning_beside_text=False)
        bare_tools = self._shows_tool({"name": "probetool"})
        variable_tools = bare_tools or self._shows_tool(_FULL_TOOL)
        system_tools = system and not variable_tools and self._shows_system_tools()
        return Capabilities(
            part_roles=frozenset(self._part_roles),
            media=frozenset(kind for kind in _MEDIA if self._takes_media(kind)),
            system=system,
            any_system=system and self._takes_any_system(),
            repeated_roles=self._takes_repeated_roles(),
            calls=calls,
            reasoning_key=reasoning_key,
            tools=variable_tools or system_tools,
            bare_tools=bare_tools or system_tools,
            system_tools=system_tools,
            no_tools=self._no_tools,
        )

    def _render(
        self,
        messages: list[_Message],
        *,
        tools: list[Any] | None = None,
        answer: bool = True,
    ) -> str:
        """Render a probe; empty when the template refuses it."""
        variables = {
            **self._tokens,
            "messages": messages,
            "tools": tools or self._no_tools,
            "documents": None,
            "add_generation_prompt": answer,
        }
        try:
            return self._template.probe(variables, _NOON)
        except ApiError:
            return ""

    def _shows(self, messages: list[_Message], *words: str, answer: bool = True) -> bool:
        """Tell whether the words come out, in this order."""
        text = self._render(messages, answer=answer)
        place = 0
        for word in words:
            place = text.find(word, place) + 1
            if not place:
                return False
        return True

    def _say(self, role: str, text: str | None) -> _Message:
        """Make a message in the shape found for the role."""
        if text is None or role not in self._part_roles:
            return {"role": role, "content": text}
        parts = [{"type": "text", "text": text}] if text else []
        return {"role": role, "content": parts}

    def _find_user_shape(self) -> bool:
        """Find how a plain question must look for anything to come out."""
        empty_tools: list[Any] = []
        for self._no_tools in (None, empty_tools):
            if self._find_shape("user"):
                return True
            for opening in (self._say("system", "x"), _parts("system", "x")):
                self._opening = [opening]
                if self._find_shape("user"):
                    return True
            self._opening = []
        return False

    def _find_shape(
        self,
        role: str,
        after: list[_Message] | None = None,
        before: list[_Message] | None = None,
    ) -> bool:
        """Find whether a role's text comes out, as a string or else as parts."""
        opening = [] if role == "system" else self._opening
        for in_parts in (False, True):
            (self._part_roles.add if in_parts else self._part_roles.discard)(role)
            message = self._say(role, "probeword")
            if self._shows([*opening, *(before or []), message, *(after or [])], "probeword"):
                return True
        self._part_roles.discard(role)
        return False

    def _takes_any_system(self) -> bool:
        words = ("probeone", "probetwo", "probethree")
        messages = [
            self._say("system", words[0]),
            self._say("system", words[1]),
            self._say("user", "probeuser"),
            self._say("assistant", "probeanswer"),
            self._say("system", words[2]),
            self._say("user", "probelast"),
        ]
        return self._shows(messages, *words, "probelast")

    def _takes_repeated_roles(self) -> bool:
        words = ("probeone", "probetwo", "probethree", "probefour", "probefive")
        roles = ("user", "user", "assistant", "assistant", "user")
        turns = [self._say(role, word) for role, word in zip(roles, words, strict=True)]
        return self._shows([*self._opening, *turns], *words)

    def _takes_media(self, kind: str) -> bool:
        text = {"type": "text", "text": "probeword"}
        plain = self._render([*self._opening, {"role": "user", "content": [text]}])
        shown = self._render([*self._opening, {"role": "user", "content": [{"type": kind}, text]}])
        # A template for strings prints the list as a Python literal.
        return "probeword" in shown and shown != plain and "'type'" not in shown

    def _shows_tool(self, function: dict[str, Any]) -> bool:
        question = [self._say("user", "probeuser")]
        for opening in (self._opening, [self._say("system", "probeword")]):
            tools = [{"type": "function", "function": function}]
            if "probetool" in self._render([*opening, *question], tools=tools):
                return True
        return False

    def _shows_system_tools(self) -> bool:
        tools = '[{"name": "probetool"}]'
        system = {**self._say("system", "probeword"), "tools": tools}
        return self._shows([system, self._say("user", "probeuser")], tools)

    def _calling(self, style: CallStyle, count: int = 1, **fields: object) -> list[_Message]:
        """Make a question, a turn of calls and their results."""
        call_id = _SHORT_ID if style.short_ids else _LONG_ID
        arguments = _ARGUMENTS_TEXT if style.arguments == "string" else _ARGUMENTS
        ids = [f"{call_id[:-1]}{number}" for number in range(count)]
        calls = [
            {
                "id": ids[number],
                "type": "function",
                "function": {"name": f"probecall{number}", "arguments": arguments},
            }
            for number in range(count)
        ]
        turn = {**self._say("assistant", style.blank), "tool_calls": calls, **fields}
        results = [
            {
                **self._say("tool", f"proberesult{number}"),
                "tool_call_id": ids[number],
                "name": f"probecall{number}",
            }
            for number in range(count)
        ]
        return [*self._opening, self._say("user", "probeuser"), turn, *results]

    def _find_calls(self) -> CallStyle | None:
        """Find how calls and results must look for both to come out."""
        for in_parts in (False, True):
            (self._part_roles.add if in_parts else self._part_roles.discard)("tool")
            for short_ids in (False, True):
                for blank in (None, ""):
                    style = self._find_arguments(CallStyle(blank=blank, short_ids=short_ids))
                    if style is not None:
                        return self._complete(style)
        self._part_roles.discard("tool")
        return None

    def _find_arguments(self, style: CallStyle) -> CallStyle | None:
        """Find how arguments must look; their own text is kept where it stays readable."""
        as_object = self._render(self._calling(style))
        literals = self._render([*self._opening, self._say("user", "probeuser")]).count("None")
        shown = (
            all(word in as_object for word in ("probecall0", *_ARGUMENTS, "proberesult0"))
            # Python literals are no way to show arguments.
            and "'probekey'" not in as_object
            and as_object.count("None") <= literals
        )
        string_style = msgspec.structs.replace(style, arguments="string")
        as_string = self._render(self._calling(string_style))
        string_shown = (
            all(word in as_string for word in ("probecall0", _ARGUMENTS_TEXT, "proberesult0"))
            and as_string.count("None") <= literals
        )
        if string_shown and (not shown or '"probekey"' in as_object):
            return string_style
        return style if shown else None

    def _complete(self, style: CallStyle) -> CallStyle:
        """Find what else a turn of calls may hold."""
        two = ("probecall0", "probecall1", "proberesult0", "proberesult1")
        beside = self._calling(style, content=self._say("assistant", "probetext")["content"])
        rendered = self._render(self._calling(style, 2))
        question = [*self._calling(style), self._say("user", "probelast")]
        return msgspec.structs.replace(
            style,
            parallel=all(word in rendered for word in two),
            text_beside=self._shows(beside, "probetext", "probecall0"),
            question_after_result=self._shows(question, "proberesult0", "probelast"),
        )

    def _find_reasoning_key(self, calls: CallStyle | None) -> str | None:
        """Find the key whose reasoning comes out, in a last answer or in a turn of calls."""
        for key in _REASONING_KEYS:
            thought = {key: "probethought"}
            answer = {**self._say("assistant", "probeanswer"), **thought}
            turns = [*self._opening, self._say("user", "probeuser"), answer]
            if self._shows(turns, "probethought", answer=False):
                return key
            if calls and self._shows(self._calling(calls, 1, **thought), "probethought"):
                return key
        return None

    def _takes_reasoning_beside(self, calls: CallStyle, key: str) -> bool:
        text = "probetext" if calls.text_beside else calls.blank
        content = self._say("assistant", text)["content"]
        messages = self._calling(calls, 1, content=content, **{key: "probethought"})
        return self._shows(messages, "probecall0")


def _parts(role: str, text: str) -> _Message:
    return {"role": role, "content": [{"type": "text", "text": text}]}


_FULL_TOOL: dict[str, Any] = {
    "name": "probetool",
    "description": "",
    "parameters": {"type": "object", "properties": {}},
}

_NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - templates print local time
