"""From a body and its history to what is generated and what is repeated: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET
from pegboard_contracts.conversation import Conversation
from pegboard_contracts.errors import invalid_request
from pegboard_contracts.generation import (
    GenerationRequest,
    OutputFormat,
    ReasoningOptions,
)
from pegboard_contracts.principal import Principal

from pegboard_routes._responses.event_ladder import LadderOptions
from pegboard_routes._responses.items import AnyItem
from pegboard_routes._responses.lowering import lower_items, replay_compactions
from pegboard_routes._responses.request import InputBody, ResponsesRequest, TextFormat
from pegboard_routes._responses.response_object import (
    ConversationReference,
    ReasoningEcho,
    ResponseObject,
)
from pegboard_routes._responses.settings import Settings
from pegboard_routes._responses.tools import OfferedTools, offered_tools
from pegboard_routes._sampling_fields import refuse_unsupported

_EFFORT_OFF = {"none", "off", "disabled", "false", "0"}
_SUMMARIES = {"auto", "concise", "detailed"}


def input_request(
    body: InputBody,
    items: Sequence[AnyItem],
    tools: OfferedTools,
    principal: Principal,
    settings: Settings,
) -> GenerationRequest:
    """Make the request that shows `items` to the model; enough to count them."""
    effort = body.reasoning.effort if body.reasoning else None
    mapped = effort if settings.map_reasoning_effort else None
    off = mapped is not None and mapped.strip().lower() in _EFFORT_OFF
    switch = {} if mapped is None else {"enable_thinking": not off}
    conversation = Conversation(
        messages=lower_items(replay_compactions(items), body.instructions),
        tools=tools.tools,
        template_variables=switch | (body.chat_template_kwargs or {}),
    )
    return GenerationRequest(
        model=body.model,
        conversation=conversation,
        tool_choice=tools.choice,
        reasoning=ReasoningOptions(effort=None if off else mapped),
        principal=principal,
    )


def tools_of(body: InputBody, settings: Settings) -> OfferedTools:
    """Read a body's tools; see `tools.offered_tools`."""
    return offered_tools(body.tools or (), body.tool_choice, unsupported=settings.unsupported_tools)


def generation_request(
    body: ResponsesRequest,
    items: Sequence[AnyItem],
    tools: OfferedTools,
    principal: Principal,
    settings: Settings,
) -> GenerationRequest:
    """Make the request that answers `body`.

    Raises `ApiError` 501 for fields that cannot be honoured and 400 for what contradicts
    itself.
    """
    refuse_unsupported(body.model_extra, ResponsesRequest.refused)
    shown = input_request(body, items, tools, principal, settings)
    output_format = _output_format(body)
    limit = body.max_tokens or body.max_completion_tokens or body.n_predict
    limit = limit or body.max_output_tokens
    budget = _thinking_budget(body)
    if tools.choice.mode == "required" and output_format is not None:
        message = "A forced tool choice and a text format exclude each other; leave one out."
        raise invalid_request(message, param="tool_choice")
    if budget is not None and limit is not None and budget > limit:
        message = "'thinking_budget_tokens' is more than the answer's own token limit."
        raise invalid_request(message, param="thinking_budget_tokens")
    return msgspec.structs.replace(
        shown,
        sampling=body.sampling(),
        max_output_tokens=limit,
        stop=tuple(body.stop or ()),
        top_logprobs=(body.top_logprobs or 0) if wants_logprobs(body) else None,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        output_format=output_format,
        reasoning=msgspec.structs.replace(shown.reasoning, budget_tokens=budget),
    )


def wants_logprobs(body: ResponsesRequest) -> bool:
    """Tell whether the text is to come with log probabilities."""
    return bool(body.top_logprobs) or "message.output_text.logprobs" in (body.include or ())


def text_format(body: ResponsesRequest) -> TextFormat | None:
    """Return the text format, from whichever of the two fields has it."""
    return (body.text and body.text.format) or body.response_format


def ladder_options(
    body: ResponsesRequest, tools: OfferedTools, settings: Settings, *, answers: bool
) -> LadderOptions:
    """Say how the answer to `body` is told."""
    return LadderOptions(
        reasoning_events=settings.reasoning_events,
        sealed_reasoning="reasoning.encrypted_content" in (body.include or ()),
        logprobs=wants_logprobs(body),
        answers=answers,
        compaction_events=settings.compaction_events,
        max_tool_calls=body.max_tool_calls,
        namespaces=tools.namespaces,
    )


def draft(
    body: ResponsesRequest, tools: OfferedTools, settings: Settings, identifier: str, now: int
) -> ResponseObject:
    """Make the response as far as the request tells it."""
    sampling = body.sampling()
    return ResponseObject(
        id=identifier,
        created_at=now,
        status="queued" if body.background else "in_progress",
        background=_background(body, settings),
        model=body.model,
        instructions=body.instructions,
        previous_response_id=body.previous_response_id,
        conversation=ConversationReference(body.conversation) if body.conversation else UNSET,
        tools=tools.echo,
        tool_choice=tools.choice_echo,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        max_tool_calls=body.max_tool_calls,
        max_output_tokens=body.max_output_tokens,
        text={"format": _format_echo(text_format(body))},
        reasoning=_reasoning_echo(body),
        temperature=1.0 if sampling.temperature is None else sampling.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        top_logprobs=body.top_logprobs or 0,
        store=body.stored,
        metadata=body.metadata or {},
        user=body.user or UNSET,
        safety_identifier=body.safety_identifier,
        prompt_cache_key=body.prompt_cache_key,
    )


def _background(body: ResponsesRequest, settings: Settings) -> bool | msgspec.UnsetType:
    if body.background:
        return True
    return False if settings.background_key_always else UNSET


def _thinking_budget(body: ResponsesRequest) -> int | None:
    budgets = (
        body.thinking_budget_tokens,
        body.reasoning_budget_tokens,
        body.thinking_token_budget,
        body.thinking_budget,
    )
    budget = next((value for value in budgets if value is not None), -1)
    return None if budget < 0 else budget


def _output_format(body: ResponsesRequest) -> OutputFormat | None:
    wanted = text_format(body)
    if wanted is None or wanted.type == "text":
        return None
    param = "response_format" if wanted is body.response_format else "text.format"
    if wanted.type != "json_schema":
        value = (wanted.model_extra or {}).get(wanted.type)
        return OutputFormat(kind=wanted.type, value=value, param=param)
    return OutputFormat(
        kind="json_schema",
        value=wanted.schema_,
        strict=wanted.strict is True,
        name=wanted.name,
        param=param,
    )


def _format_echo(wanted: TextFormat | None) -> dict[str, Any]:
    if wanted is None:
        return {"type": "text"}
    if wanted.type != "json_schema":
        return {"type": wanted.type}
    return {
        "type": "json_schema",
        "name": wanted.name or "response",
        "description": wanted.description,
        "schema": wanted.schema_,
        "strict": wanted.strict is True,
    }


def _reasoning_echo(body: ResponsesRequest) -> ReasoningEcho | None:
    asked = body.reasoning
    if asked is None:
        return None
    summary = asked.summary if asked.summary in _SUMMARIES else None
    return ReasoningEcho(asked.effort, summary)
