"""From the wire shape of a chat completion to generation requests: pure functions."""

from __future__ import annotations

from pegboard_contracts.conversation import (
    Conversation,
    MediaPart,
    Message,
    Part,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from pegboard_contracts.errors import invalid_request, not_supported
from pegboard_contracts.generation import (
    GenerationRequest,
    ReasoningOptions,
)
from pegboard_contracts.principal import Principal

from pegboard_routes._chat_request import (
    ChatMessage,
    ChatRequest,
    ContentPart,
    ToolDefinition,
)
from pegboard_routes._sampling_fields import refuse_unsupported, repeated

_EFFORT_OFF = {"none", "off", "disabled", "false", "0"}


def generation_requests(body: ChatRequest, principal: Principal) -> list[GenerationRequest]:
    """Make one request per wanted answer, alike but for their seeds.

    Raises `ApiError` 501 for fields that cannot be honoured and 400 for what contradicts
    itself.
    """
    _refuse_unsupported(body)
    request = GenerationRequest(
        model=body.model,
        conversation=_conversation(body),
        sampling=body.sampling(),
        max_output_tokens=body.max_completion_tokens or body.max_tokens,
        stop=tuple(body.stop or ()),
        include_stop=bool(body.include_stop_str_in_output),
        top_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        tool_choice=_tool_choice(body),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        output_format=body.output_format(),
        reasoning=_reasoning(body),
        principal=principal,
    )
    _refuse_contradictions(request)
    return repeated(request, body.n or 1)


def _refuse_unsupported(body: ChatRequest) -> None:
    extra = body.model_extra or {}
    for name in ("functions", "function_call"):
        if extra.get(name) is not None and extra[name] not in ChatRequest.refused[name]:
            raise not_supported(name, f"'{name}' is retired; send 'tools' and 'tool_choice'.")
    refuse_unsupported(extra, ChatRequest.refused)


def _refuse_contradictions(request: GenerationRequest) -> None:
    offered = request.conversation.tools if request.conversation else ()
    tools = {tool.name for tool in offered}
    choice = request.tool_choice
    if choice.mode == "required" and not tools:
        raise invalid_request("'tool_choice' asks for a call; give 'tools'.", param="tool_choice")
    if not tools.issuperset(choice.names):
        message = "'tool_choice' names a function that is not among 'tools'."
        raise invalid_request(message, param="tool_choice")
    if choice.mode == "required" and request.output_format is not None:
        message = "A forced tool choice and a form of the answer exclude each other; leave one out."
        raise invalid_request(message, param="tool_choice")
    budget, limit = request.reasoning.budget_tokens, request.max_output_tokens
    if budget is not None and limit is not None and budget > limit:
        message = "'thinking_budget_tokens' is more than the answer's own token limit."
        raise invalid_request(message, param="thinking_budget_tokens")


def _conversation(body: ChatRequest) -> Conversation:
    last = body.messages[-1]
    switch = _thinking_switch(body.reasoning_effort)
    return Conversation(
        messages=tuple(_message(message, index) for index, message in enumerate(body.messages)),
        tools=tuple(_tool(tool, index) for index, tool in enumerate(body.tools or ())),
        template_variables=switch | (body.chat_template_kwargs or {}),
        continue_last=last.role == "assistant" and not last.tool_calls,
    )


def _message(message: ChatMessage, index: int) -> Message:
    content = tuple(
        _part(part, f"messages.{index}.content.{number}")
        for number, part in enumerate(message.content or ())
    )
    if not content and message.refusal:
        content = (TextPart(message.refusal),)
    return Message(
        role=message.role,
        content=content,
        reasoning=message.reasoning_content or message.reasoning or None,
        tool_calls=tuple(
            ToolCall(call.id or "", call.function.name, call.function.arguments)
            for call in message.tool_calls or ()
        ),
        tool_call_id=message.tool_call_id,
        name=message.name,
    )


def _part(part: ContentPart, path: str) -> Part:
    if part.image_url is not None and part.payload == "image_url":
        return MediaPart("image", part.image_url.url)
    if part.video_url is not None and part.payload == "video_url":
        return MediaPart("video", part.video_url.url)
    if part.input_audio is not None and part.payload == "input_audio":
        audio = part.input_audio
        return MediaPart("audio", f"data:audio/{audio.format};base64,{audio.data}")
    if part.file is not None and part.payload == "file":
        if part.file.file_data is None:
            message = "Stored files are not supported; send 'file_data'."
            raise not_supported(f"{path}.file.file_id", message)
        return MediaPart("file", part.file.file_data)
    return TextPart((part.refusal if part.payload == "refusal" else part.text) or "")


def _tool(tool: ToolDefinition, index: int) -> Tool:
    function = tool.function
    if function is None or tool.type not in {None, "function"}:
        message = "Only function tools can be offered here; leave other tools out."
        raise invalid_request(message, param=f"tools.{index}.type", code="unsupported_tool")
    return Tool(
        name=function.name,
        description=function.description,
        parameters=function.parameters,
        strict=bool(function.strict),
    )


def _tool_choice(body: ChatRequest) -> ToolChoice:
    choice = body.tool_choice
    return ToolChoice() if choice is None else ToolChoice(mode=choice.mode, names=choice.names)


def _reasoning(body: ChatRequest) -> ReasoningOptions:
    budgets = (
        body.thinking_budget_tokens,
        body.reasoning_budget_tokens,
        body.thinking_token_budget,
        body.thinking_budget,
    )
    budget = next((value for value in budgets if value is not None), -1)
    effort = body.reasoning_effort
    return ReasoningOptions(
        effort=None if _is_off(effort) else effort,
        budget_tokens=None if budget < 0 else budget,
    )


def _thinking_switch(effort: str | None) -> dict[str, object]:
    return {} if effort is None else {"enable_thinking": not _is_off(effort)}


def _is_off(effort: str | None) -> bool:
    return effort is not None and effort.strip().lower() in _EFFORT_OFF
