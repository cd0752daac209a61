"""From semantic events to the wire shape of a chat completion: pure, and cheap per token."""

from __future__ import annotations

import secrets
import time
from typing import Any, Literal

import msgspec
from pegboard_contracts.events import (
    Finished,
    GenerationEvent,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolArgumentsDelta,
    ToolCallStarted,
)
from pegboard_contracts.generation import FinishReason, Usage

_LEAST_LOGPROB = -9999.0
_encode = msgspec.json.Encoder().encode


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Count what of the prompt was cached."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    """Count what of the answer was reasoning."""

    reasoning_tokens: int


class ChatUsage(msgspec.Struct, frozen=True):
    """Count the tokens of one request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class WireLogprob(msgspec.Struct, frozen=True):
    """Carry one token's log probability; `bytes` are the token's UTF-8."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenLogprob(WireLogprob, frozen=True):
    """Carry the chosen token and its rivals."""

    top_logprobs: list[WireLogprob]


class ChoiceLogprobs(msgspec.Struct, frozen=True):
    """Carry the log probabilities of a choice's visible text."""

    content: list[ChosenLogprob]
    refusal: list[ChosenLogprob] | None = None


class WireFunction(msgspec.Struct, frozen=True):
    """Carry a call's function; `arguments` is JSON text."""

    name: str
    arguments: str


class WireToolCall(msgspec.Struct, frozen=True):
    """Carry one call."""

    id: str
    function: WireFunction
    type: Literal["function"] = "function"


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Carry an answer; what was not produced is absent, `content` is null beside calls alone."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: str | None = None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    reasoning: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[WireToolCall] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Carry one of the answers to a request.

    `unmet` is there when the answer lacks what its format asked for without `strict`.
    """

    index: int
    message: AssistantMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: FinishReason
    unmet: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a chat completion that is not streamed."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    system_fingerprint: str | None = None


class Identity(msgspec.Struct, frozen=True):
    """Carry what all parts of one completion share."""

    id: str
    created: int
    model: str
    system_fingerprint: str


def new_identity(model: str, version: str) -> Identity:
    """Make the identity of a completion by the model of this canonical id."""
    return Identity(
        f"chatcmpl-{secrets.token_hex(16)}", int(time.time()), model, f"pegboard-{version}"
    )


class Answer:
    """Fold the events of one choice."""

    def __init__(self, *, logprobs: bool) -> None:
        """Start empty."""
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[tuple[str, str, list[str]]] = []
        self._logprobs: list[ChosenLogprob] | None = [] if logprobs else None
        self._finished: Finished | None = None

    def add(self, event: GenerationEvent) -> None:
        """Take the next event."""
        if isinstance(event, TextDelta):
            self._text.append(event.text)
            if self._logprobs is not None:
                self._logprobs.extend(map(_chosen, event.logprobs))
        elif isinstance(event, ReasoningDelta):
            self._reasoning.append(event.text)
        elif isinstance(event, ToolCallStarted):
            self._calls.append((event.call_id, event.name, []))
        elif isinstance(event, ToolArgumentsDelta):
            self._calls[event.index][2].append(event.text)
        elif isinstance(event, Finished):
            self._finished = event

    @property
    def usage(self) -> Usage:
        """Return the counts of the finished answer."""
        return Usage() if self._finished is None else self._finished.usage

    def choice(self, index: int) -> ChatChoice:
        """Return the finished answer."""
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        calls = [
            WireToolCall(call_id, WireFunction(name, "".join(arguments)))
            for call_id, name, arguments in self._calls
        ]
        message = AssistantMessage(
            content=None if calls and not text else text,
            reasoning_content=reasoning or msgspec.UNSET,
            reasoning=reasoning or msgspec.UNSET,
            tool_calls=calls or msgspec.UNSET,
        )
        reason = FinishReason.STOP if self._finished is None else self._finished.reason
        logprobs = None if self._logprobs is None else ChoiceLogprobs(self._logprobs)
        unmet = () if self._finished is None else self._finished.unmet
        return ChatChoice(
            index=index,
            message=message,
            logprobs=logprobs,
            finish_reason=reason,
            unmet=unmet or msgspec.UNSET,
        )


def completion(identity: Identity, answers: list[Answer]) -> ChatCompletion:
    """Put the finished answers of one request together."""
    return ChatCompletion(
        id=identity.id,
        created=identity.created,
        model=identity.model,
        choices=[answer.choice(index) for index, answer in enumerate(answers)],
        usage=joint_usage([answer.usage for answer in answers]),
        system_fingerprint=identity.system_fingerprint,
    )


def joint_usage(usages: list[Usage]) -> ChatUsage:
    """Add up the answers to one prompt: it counts once, and as cached only if it always was."""
    prompt = max(usage.prompt_tokens for usage in usages)
    output = sum(usage.output_tokens for usage in usages)
    return ChatUsage(
        prompt,
        output,
        prompt + output,
        PromptTokensDetails(min(usage.cached_tokens for usage in usages)),
        CompletionTokensDetails(sum(usage.reasoning_tokens for usage in usages)),
    )


class Chunks:
    """Make the stream of one choice: everything that never changes is encoded once."""

    def __init__(
        self, identity: Identity, index: int, *, include_usage: bool, logprobs: bool
    ) -> None:
        """Encode what all chunks of the choice share."""
        usage = ',"usage":null' if include_usage else ""
        self._head = _chunk_head(identity) + (
            f'{usage},"choices":[{{"index":{index},"delta":{{'.encode()
        )
        self._logprobs = logprobs
        self._tail = b'},"logprobs":null,"finish_reason":null}]}\n\n'
        self._spoken = False
        self.usage: Usage | None = None

    def opening(self) -> bytes:
        """Frame the first chunk: who speaks."""
        return self._head + b'"role":"assistant","content":null' + self._tail

    def chunk(self, event: GenerationEvent) -> bytes | None:
        """Frame one event; an event that says nothing on the wire gives nothing."""
        if isinstance(event, TextDelta):
            if not event.text and not (self._logprobs and event.logprobs):
                return None
            self._spoken = True
            rest = self._with_logprobs(event.logprobs) if self._logprobs else self._tail
            return self._head + b'"content":' + _encode(event.text) + rest
        if isinstance(event, ReasoningDelta):
            if not event.text:
                return None
            text = _encode(event.text)
            fields = b'"reasoning_content":' + text + b',"reasoning":' + text
            return self._head + fields + self._tail
        if isinstance(event, ToolArgumentsDelta):
            fields = b'"tool_calls":[{"index":%d,"function":{"arguments":%b}}]' % (
                event.index,
                _encode(event.text),
            )
            return self._head + fields + self._tail
        return self._rare_chunk(event)

    def _rare_chunk(self, event: GenerationEvent) -> bytes | None:
        if isinstance(event, ToolCallStarted):
            self._spoken = True
            call = WireToolCall(event.call_id, WireFunction(event.name, ""))
            fields = b'"tool_calls":[{"index":%d,%b]' % (event.index, _encode(call)[1:])
            return self._head + fields + self._tail
        if isinstance(event, Finished):
            self.usage = event.usage
            empty = b"" if self._spoken else b'"content":""'
            unmet = b',"unmet":' + _encode(event.unmet) if event.unmet else b""
            reason = event.reason.encode()
            end = b'},"logprobs":null,"finish_reason":"%b"%b}]}\n\n' % (reason, unmet)
            return self._head + empty + end
        return None

    def _with_logprobs(self, logprobs: tuple[TokenLogprob, ...]) -> bytes:
        fields = _encode(ChoiceLogprobs([_chosen(logprob) for logprob in logprobs]))
        return b'},"logprobs":' + fields + b',"finish_reason":null}]}\n\n'


def usage_chunk(identity: Identity, usages: list[Usage]) -> bytes:
    """Frame the one chunk that carries the usage and no choice."""
    return _chunk_head(identity) + (
        b',"choices":[],"usage":' + _encode(joint_usage(usages)) + b"}\n\n"
    )


def _chunk_head(identity: Identity) -> bytes:
    shared: dict[str, Any] = {
        "id": identity.id,
        "object": "chat.completion.chunk",
        "created": identity.created,
        "model": identity.model,
        "system_fingerprint": identity.system_fingerprint,
    }
    return b"data: " + _encode(shared)[:-1]


def _chosen(logprob: TokenLogprob) -> ChosenLogprob:
    top = [_logprob(text, value) for text, value in logprob.top]
    one = _logprob(logprob.text, logprob.logprob)
    return ChosenLogprob(one.token, one.logprob, one.bytes, top)


def _logprob(text: str, value: float) -> WireLogprob:
    # JSON has no infinity; the floor is the one clients know.
    return WireLogprob(text, max(value, _LEAST_LOGPROB), list(text.encode()))
