"""The body of a response as clients send it: what is known, and its bounds."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, cast

from pegboard_contracts.http import JsonObject, RequestModel
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from pegboard_routes._responses.items import Items
from pegboard_routes._sampling_fields import UNSUPPORTED_SAMPLING, SamplingFields

MOST_TOOLS = 128


def _as_reference(value: object) -> object:
    return cast("dict[str, Any]", value).get("id") if isinstance(value, dict) else value


class TextFormat(RequestModel):
    """Say how the text must look; a schema stands here or under `json_schema`."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(min_length=1)
    name: str | None = None
    description: str | None = None
    schema_: JsonObject | None = Field(default=None, alias="schema")
    strict: bool | None = None
    json_schema: JsonObject | None = None

    @model_validator(mode="before")
    @classmethod
    def _nested(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        fields = cast("dict[str, Any]", value)
        nested = fields.get("json_schema")
        if fields.get("type") == "json_schema" and isinstance(nested, dict):
            return {**fields, **cast("dict[str, Any]", nested), "json_schema": None}
        return fields

    @model_validator(mode="after")
    def _has_schema(self) -> TextFormat:
        if self.type == "json_schema" and self.schema_ is None:
            raise ValueError("the type 'json_schema' needs a 'schema'")
        return self


class TextOptions(RequestModel):
    """Say how the text must look; `verbosity` is ignored."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(RequestModel):
    """Say how much the model should think; `summary` is only repeated."""

    effort: str | None = None
    summary: str | None = None


class ContextManagement(RequestModel):
    """Ask for a compaction when the input reaches a size in tokens."""

    type: Literal["compaction"]
    compact_threshold: int = Field(ge=1, le=100_000_000)


MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)]
Tokens = Annotated[int, Field(ge=1, lt=2**63)]
Budget = Annotated[int, Field(ge=-1, lt=2**63)]
ShortText = Annotated[str, Field(max_length=512)]
Reference = Annotated[
    Annotated[str, Field(min_length=1, max_length=512)] | None,
    BeforeValidator(_as_reference, json_schema_input_type=str | dict[str, Any] | None),
]


class InputBody(RequestModel):
    """Describe what the model is to see: what counting, creating and compacting share."""

    model: str = Field(min_length=1)
    input: Items
    instructions: str | None = None
    tools: Annotated[list[JsonObject], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: str | JsonObject | None = None
    chat_template_kwargs: JsonObject | None = None
    reasoning: Reasoning | None = None
    previous_response_id: Annotated[str, Field(min_length=1)] | None = None
    conversation: Reference = None
    stream: bool | None = None
    prompt_cache_key: ShortText | None = None
    user: ShortText | None = None

    @model_validator(mode="after")
    def _one_history(self) -> InputBody:
        if self.previous_response_id is not None and self.conversation is not None:
            raise ValueError("'previous_response_id' and 'conversation' exclude each other")
        return self


class ResponsesRequest(InputBody, SamplingFields):
    """Describe a response; unknown fields are ignored.

    Of the known ones, `service_tier`, `prompt_cache_retention` and `text.verbosity` are
    ignored too; `user`, `safety_identifier` and `prompt_cache_key` are only repeated; those
    of `refused` are refused unless they say what happens anyway.
    """

    model_config = ConfigDict(extra="allow")

    refused: ClassVar[dict[str, tuple[Any, ...]]] = {
        **UNSUPPORTED_SAMPLING,
        "moderation": (),
        "prompt": (),
    }
    """Known fields that cannot be honoured, with the values that ask for nothing."""

    background: bool | None = None
    context_management: list[ContextManagement] | None = Field(default=None, max_length=1)
    generate: bool | None = None
    include: list[str] | None = None
    max_completion_tokens: Tokens | None = None
    max_output_tokens: Tokens | None = None
    max_tool_calls: int | None = Field(default=None, ge=1)
    metadata: Metadata | None = None
    n_predict: Tokens | None = None
    parallel_tool_calls: bool | None = None
    reasoning_budget_tokens: Budget | None = None
    response_format: TextFormat | None = None
    safety_identifier: ShortText | None = None
    store: bool | None = None
    text: TextOptions | None = None
    thinking_budget: Budget | None = None
    thinking_budget_tokens: Budget | None = None
    thinking_token_budget: Budget | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    truncation: Literal["disabled"] | None = None

    @property
    def stored(self) -> bool:
        """Tell whether the response is to be kept; it is unless the client says no."""
        return self.store is not False

    @property
    def compact_threshold(self) -> int | None:
        """Return the size of the input, in tokens, from which on it is compacted."""
        return self.context_management[0].compact_threshold if self.context_management else None

    @model_validator(mode="after")
    def _one_format(self) -> ResponsesRequest:
        if self.response_format and self.text and self.text.format:
            raise ValueError("'text.format' and 'response_format' exclude each other")
        return self


class CompactRequest(InputBody):
    """Describe a compaction of the history in `input`; unknown fields are ignored."""

    keep_tokens: Tokens | None = None
    max_output_tokens: int | None = Field(default=None, ge=1, le=16_384)

    @model_validator(mode="after")
    def _whole(self) -> CompactRequest:
        if self.stream:
            raise ValueError("'stream' is not supported here; the answer is one object")
        if self.previous_response_id is not None or self.conversation is not None:
            raise ValueError("give the whole history in 'input' instead of naming it")
        return self
