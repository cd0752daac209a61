"""The semantic events of an answer: what every API's wire shape is made from."""

from __future__ import annotations

import msgspec

from pegboard_contracts.generation import FinishReason, Sampling, Usage


class TokenLogprob(msgspec.Struct, frozen=True):
    """Carry a token's log probability, and the likeliest alternatives the engine gave."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """Say that the request is validated, rendered, counted and enqueued.

    `model` is the canonical id; `sampling` and `max_output_tokens` are what is used.
    """

    model: str
    prompt_tokens: int
    sampling: Sampling
    max_output_tokens: int


class PromptLogprobs(msgspec.Struct, frozen=True):
    """Carry the log probabilities of the prompt's tokens, before any text of the answer.

    The first token has nothing before it, so its number has no meaning.
    """

    tokens: tuple[TokenLogprob, ...]


class TextDelta(msgspec.Struct, frozen=True):
    """Carry visible text; joined, the deltas are the answer's content."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class ReasoningDelta(msgspec.Struct, frozen=True):
    """Carry text of the model's reasoning, without its markers."""

    text: str


class ToolCallStarted(msgspec.Struct, frozen=True):
    """Open a call; `index` counts from 0 and `call_id` never changes."""

    index: int
    call_id: str
    name: str


class ToolArgumentsDelta(msgspec.Struct, frozen=True):
    """Carry a fragment of a call's arguments; joined, they are its final JSON text."""

    index: int
    text: str


class ToolCallDone(msgspec.Struct, frozen=True):
    """Close a call; `complete` is false when the answer ended inside it."""

    index: int
    complete: bool = True


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """End an answer; nothing follows. `reason` is `tool_calls` whenever calls were made.

    `unmet` says what a format without `strict` asked for and the finished answer lacks, a
    line each.
    """

    reason: FinishReason
    usage: Usage
    stop_string: str | None = None
    unmet: tuple[str, ...] = ()


FormatEvent = TextDelta | ReasoningDelta | ToolCallStarted | ToolArgumentsDelta | ToolCallDone
GenerationEvent = Accepted | PromptLogprobs | FormatEvent | Finished
