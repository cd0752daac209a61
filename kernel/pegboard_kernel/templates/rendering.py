"""Render a conversation with a model's chat template."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, cast

from pegboard_contracts.conversation import (
    Conversation,
    MediaPart,
    Message,
    Part,
    TextPart,
    Tool,
    ToolCall,
)
from pegboard_contracts.engine import TemplateSource
from pegboard_contracts.errors import ApiError, invalid_request

from pegboard_kernel.templates.capabilities import Capabilities, capabilities_of
from pegboard_kernel.templates.environment import chat_template, template_error
from pegboard_kernel.templates.literals import CUT_MARK, Literals, literals_of
from pegboard_kernel.templates.messages import fit_messages

# A template that splits an assistant's text at its reasoning markers needs them whole,
# also where they are special tokens. None of them ends a turn.
_REASONING_MARKERS = frozenset(
    f"{opening}{name}{closing}"
    for name in ("think", "thinking", "thought", "reasoning", "seed:think", "THINK")
    for opening, closing in (("<", ">"), ("</", ">"), ("[", "]"), ("[/", "]"))
)


def render_prompt(
    source: TemplateSource,
    conversation: Conversation,
    *,
    special_texts: frozenset[str],
    now: datetime | None = None,
) -> str:
    """Return the text a model reads, ready to be tokenized without adding any token.

    Special token texts inside messages, tools and template variables carry `LITERAL_MARK`;
    those of the template do not. With `continue_last` the text ends exactly behind the
    last assistant message; else it opens an answer and ends with the source's suffix.
    `now` is the local time for templates that tell it.

    Raises `ApiError` 400: `chat_template_missing`, `chat_template_error` with the
    template's own words, `unsupported_media`, or a message that says what cannot be
    continued or rendered. May run for as long as the template likes: run it where it can
    be killed.
    """
    text = _template_text(source, conversation)
    capabilities = capabilities_of(text, source.bos_token, source.eos_token)
    literals = literals_of(special_texts)
    kept = frozenset(marker for marker in _REASONING_MARKERS & special_texts if marker in text)
    writer = _Writer(capabilities, literals, literals_of(special_texts - kept))
    messages = [writer.message(item) for item in fit_messages(conversation.messages, capabilities)]
    if conversation.continue_last:
        _mark_cut(conversation, messages)
    tools = [writer.tool(tool) for tool in conversation.tools]
    if tools and capabilities.system_tools:
        _put_into_system(tools, messages)
    variables: dict[str, Any] = {
        "bos_token": source.bos_token,
        "eos_token": source.eos_token,
        "messages": messages,
        "tools": tools or capabilities.no_tools,
        "documents": None,
        "add_generation_prompt": not conversation.continue_last,
    }
    for name, value in conversation.template_variables.items():
        variables[name] = literals.protect_all(value)
    prompt = chat_template(text).render(variables, now or datetime.now())  # noqa: DTZ005 - local time
    return _cut(prompt) if conversation.continue_last else prompt + source.prompt_suffix


def supports_tools(source: TemplateSource) -> bool:
    """Tell whether tools given to the template reach the prompt.

    False for a model without a template, or with one that does not compile.
    """
    text = source.tool_template or source.template
    if text is None:
        return False
    try:
        return capabilities_of(text, source.bos_token, source.eos_token).tools
    except ApiError:
        return False


def _template_text(source: TemplateSource, conversation: Conversation) -> str:
    """Choose the template; the one for tools serves every conversation that has any."""
    calls = any(message.tool_calls or message.role == "tool" for message in conversation.messages)
    if source.tool_template is not None and (conversation.tools or calls):
        return source.tool_template
    if source.template is not None:
        return source.template
    raise invalid_request(
        "This model has no chat template, so it cannot take messages. Send a finished prompt "
        "to /v1/completions, or configure a chat template for the model.",
        param="messages",
        code="chat_template_missing",
    )


def _put_into_system(tools: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
    """Write tools into the system message in front, for templates that read them there."""
    if not messages or messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": ""})
    functions = [tool["function"] for tool in tools]
    messages[0]["tools"] = json.dumps(functions, ensure_ascii=False)


def _mark_cut(conversation: Conversation, messages: list[dict[str, Any]]) -> None:
    """Put the cut mark behind the text that is to be continued."""
    last = conversation.messages[-1] if conversation.messages else None
    if last is None or last.role != "assistant" or last.tool_calls:
        raise invalid_request(
            "Only an assistant message without tool calls can be continued; "
            "make one the last message, or ask for a new answer.",
            param="messages",
        )
    content = messages[-1]["content"]
    if isinstance(content, list):
        parts = cast("list[dict[str, Any]]", content)
        messages[-1]["content"] = [*parts, {"type": "text", "text": CUT_MARK}]
        if parts and parts[-1]["type"] == "text":
            whole = {"type": "text", "text": parts[-1]["text"] + CUT_MARK}
            messages[-1]["content"] = [*parts[:-1], whole]
    else:
        messages[-1]["content"] = (content or "") + CUT_MARK


def _cut(prompt: str) -> str:
    """Return what stands before the cut mark."""
    text, mark, _ = prompt.rpartition(CUT_MARK)
    if not mark:
        raise template_error("it leaves out the assistant message that is to be continued")
    return text.replace(CUT_MARK, "")


class _Writer:
    """Write messages and tools as the plain data that templates read."""

    def __init__(
        self, capabilities: Capabilities, literals: Literals, answer_literals: Literals
    ) -> None:
        """Keep what decides the shape, and what protects texts and assistant texts."""
        self._capabilities = capabilities
        self._literals = literals
        self._answer_literals = answer_literals

    def message(self, message: Message) -> dict[str, Any]:
        """Write one turn; keys that have no value are left out."""
        written: dict[str, Any] = {"role": message.role, "content": self._content(message)}
        for key in ("name", "tool_call_id"):
            value = getattr(message, key)
            if value is not None:
                written[key] = self._literals.protect(value)
        thoughts = self._capabilities.reasoning_key
        # A template that finds both would show the thoughts twice.
        if message.reasoning and thoughts and "</think>" not in message.text:
            written[thoughts] = self._literals.protect(message.reasoning)
        if message.tool_calls:
            written["tool_calls"] = [self._call(call) for call in message.tool_calls]
        return written

    def tool(self, tool: Tool) -> dict[str, Any]:
        """Write one tool the way OpenAI's API spells it."""
        function: dict[str, Any] = {"name": self._literals.protect(tool.name)}
        bare = self._capabilities.bare_tools
        description = tool.description if bare else tool.description or ""
        no_parameters: dict[str, Any] = {"type": "object", "properties": {}}
        parameters = tool.parameters if bare else tool.parameters or no_parameters
        if description is not None:
            function["description"] = self._literals.protect(description)
        if parameters is not None:
            function["parameters"] = self._literals.protect_all(parameters)
        return {"type": "function", "function": function}

    def _content(self, message: Message) -> str | list[dict[str, Any]] | None:
        literals = self._answer_literals if message.role == "assistant" else self._literals
        media = any(isinstance(part, MediaPart) for part in message.content)
        if media or message.role in self._capabilities.part_roles:
            return [self._part(part, literals) for part in message.content if part != TextPart("")]
        if message.tool_calls and not message.text:
            return self._capabilities.calls.blank if self._capabilities.calls else ""
        return literals.protect(message.text)

    def _part(self, part: Part, literals: Literals) -> dict[str, Any]:
        if isinstance(part, TextPart):
            return {"type": "text", "text": literals.protect(part.text)}
        if part.media not in self._capabilities.media:
            raise invalid_request(
                f"This model's chat template takes no {part.media} parts; send text only.",
                param="messages",
                code="unsupported_media",
            )
        return {"type": part.media}

    def _call(self, call: ToolCall) -> dict[str, Any]:
        style = self._capabilities.calls
        arguments: Any = call.arguments or "{}"
        if style is None or style.arguments == "object":
            arguments = _arguments_object(call)
        function = {
            "name": self._literals.protect(call.name),
            "arguments": self._literals.protect_all(arguments),
        }
        return {
            "id": self._literals.protect(call.call_id),
            "type": "function",
            "function": function,
        }


def _arguments_object(call: ToolCall) -> dict[str, Any]:
    """Parse a call's arguments for a template that takes objects only."""
    try:
        parsed: Any = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict):
        return cast("dict[str, Any]", parsed)
    raise invalid_request(
        f"The arguments of a call of '{call.name[:80]}' are no JSON object, and this model's "
        "chat template can show nothing else; leave the call out or mend its arguments.",
        param="messages",
        code="invalid_tool_arguments",
    )
