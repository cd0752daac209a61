"""The response object and its items, as they are on the wire."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from pegboard_contracts.events import TokenLogprob
from pegboard_contracts.generation import Usage

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["queued", "in_progress", "completed", "failed", "cancelled", "incomplete"]

_LEAST_LOGPROB = -9999.0


class WireLogprob(msgspec.Struct, frozen=True):
    """Carry a token's log probability; `bytes` are the token's UTF-8."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenLogprob(WireLogprob, frozen=True):
    """Carry the chosen token and its rivals."""

    top_logprobs: list[WireLogprob]


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    """Carry visible text."""

    text: str
    annotations: list[Any] = []
    logprobs: list[ChosenLogprob] = []


class SummaryText(msgspec.Struct, frozen=True, tag_field="type", tag="summary_text"):
    """Carry reasoning the way clients show it."""

    text: str


class ReasoningText(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning_text"):
    """Carry reasoning as the model wrote it."""

    text: str


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """Carry a message of the model."""

    id: str
    status: ItemStatus
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class OutputReasoning(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """Carry what the model thought."""

    id: str
    status: ItemStatus
    summary: list[SummaryText]
    content: list[ReasoningText] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


class OutputCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """Carry a call; `arguments` is JSON text."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str
    namespace: str | UnsetType = UNSET


class OutputCompaction(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="compaction"
):
    """Carry the summary that stands for earlier turns."""

    id: str
    encrypted_content: str


OutputItem = OutputMessage | OutputReasoning | OutputCall | OutputCompaction


class InputTokensDetails(msgspec.Struct, frozen=True):
    """Count what of the input was cached."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    """Count what of the output was reasoning."""

    reasoning_tokens: int = 0


class PlainUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Count the tokens of one generation."""

    input_tokens: int = 0
    input_tokens_details: InputTokensDetails = InputTokensDetails()
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    total_tokens: int = 0


class ResponseUsage(PlainUsage, frozen=True, kw_only=True):
    """Count the tokens of a response; `compaction` are those of an automatic summary."""

    compaction: PlainUsage | UnsetType = UNSET


class ResponseError(msgspec.Struct, frozen=True):
    """Say why a response failed."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True):
    """Say why a response is incomplete."""

    reason: str


class ConversationReference(msgspec.Struct, frozen=True):
    """Name the conversation a response belongs to."""

    id: str


class ReasoningEcho(msgspec.Struct, frozen=True):
    """Repeat how much thinking was asked for."""

    effort: str | None
    summary: str | None


class FunctionToolEcho(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    """Repeat a function the model could call."""

    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool | None


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a request of the Responses API; times are whole seconds since 1970.

    `unmet` is there when the answer lacks what its format asked for without `strict`.
    """

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus
    background: bool | UnsetType = UNSET
    incomplete_details: IncompleteDetails | None = None
    error: ResponseError | None = None
    model: str
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: ConversationReference | UnsetType = UNSET
    output: list[OutputItem] = []
    tools: list[FunctionToolEcho] = []
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    max_tool_calls: int | None = None
    max_output_tokens: int | None = None
    truncation: Literal["disabled"] = "disabled"
    text: dict[str, Any] = {}
    reasoning: ReasoningEcho | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = 0
    usage: ResponseUsage | None = None
    store: bool = True
    service_tier: str = "default"
    metadata: dict[str, str] = {}
    user: str | UnsetType = UNSET
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    unmet: tuple[str, ...] | UnsetType = UNSET


class InputTokens(msgspec.Struct, frozen=True):
    """Answer a count."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class CompactedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a compaction; `output` replaces the history it was made from."""

    id: str
    object: Literal["response.compaction"] = "response.compaction"
    created_at: int
    model: str
    output: list[Any]
    usage: PlainUsage


class DeletedResponse(msgspec.Struct, frozen=True):
    """Confirm a deletion."""

    id: str
    object: Literal["response.deleted"] = "response.deleted"
    deleted: Literal[True] = True


class ItemList(msgspec.Struct, frozen=True, kw_only=True):
    """Carry a page of items."""

    object: Literal["list"] = "list"
    data: list[Any]
    first_id: str | None
    last_id: str | None
    has_more: bool


def plain_usage(usage: Usage) -> PlainUsage:
    """Count one generation."""
    return PlainUsage(**_counts(usage))


def response_usage(usage: Usage, compaction: Usage | None) -> ResponseUsage:
    """Count a response, its summary apart (decision 32)."""
    return ResponseUsage(
        **_counts(usage), compaction=UNSET if compaction is None else plain_usage(compaction)
    )


def _counts(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": InputTokensDetails(usage.cached_tokens),
        "output_tokens": usage.output_tokens,
        "output_tokens_details": OutputTokensDetails(usage.reasoning_tokens),
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }


def chosen_logprob(logprob: TokenLogprob) -> ChosenLogprob:
    """Put a token's log probability into the wire's shape."""
    one = _logprob(logprob.text, logprob.logprob)
    top = [_logprob(text, value) for text, value in logprob.top]
    return ChosenLogprob(one.token, one.logprob, one.bytes, top)


def _logprob(text: str, value: float) -> WireLogprob:
    # JSON has no infinity; the floor is the one clients know.
    return WireLogprob(text, max(value, _LEAST_LOGPROB), list(text.encode()))
