"""From semantic events to the wire shape of a completion."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from pegboard_contracts.events import (
    Finished,
    GenerationEvent,
    PromptLogprobs,
    TextDelta,
    TokenLogprob,
)
from pegboard_contracts.generation import FinishReason, Usage

from pegboard_routes._chat_response import ChatUsage, Identity, joint_usage

_LEAST_LOGPROB = -9999.0
_encode = msgspec.json.Encoder().encode


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Carry the log probabilities of a choice's tokens, in four parallel lists.

    `text_offset` is where each token begins in the choice's text. `top_logprobs` holds
    the chosen token too. The first token of an echoed prompt has no probability.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Carry one of the answers; `index` counts all answers of a prompt before the next one's."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a completion that is not streamed; a stream's chunks have the same shape."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: ChatUsage
    system_fingerprint: str | None = None


def new_completion_identity(model: str, version: str) -> Identity:
    """Make the identity of a completion by the model of this canonical id."""
    return Identity(f"cmpl-{secrets.token_hex(16)}", int(time.time()), model, f"pegboard-{version}")


class Choice:
    """Fold the events of one answer; `echo` stands in front of its text."""

    def __init__(self, echo: str) -> None:
        """Start with nothing but the echo."""
        self._echo = echo
        self._text = [echo] if echo else []
        self._prompt: Sequence[TokenLogprob] = ()
        self._logprobs: list[TokenLogprob] = []
        self._reason: FinishReason | None = None
        self.usage = Usage()

    def add(self, event: GenerationEvent) -> None:
        """Take the next event."""
        if isinstance(event, TextDelta):
            self._text.append(event.text)
            self._logprobs += event.logprobs
        elif isinstance(event, PromptLogprobs):
            self._prompt = event.tokens
        elif isinstance(event, Finished):
            self._reason, self.usage = event.reason, event.usage

    @property
    def likelihood(self) -> float:
        """Return the mean log probability of the tokens: what `best_of` ranks by."""
        values = [max(token.logprob, _LEAST_LOGPROB) for token in self._logprobs]
        return sum(values) / len(values) if values else _LEAST_LOGPROB

    def choice(self, index: int, *, logprobs: bool) -> CompletionChoice:
        """Return the finished answer."""
        said = wire_logprobs(self._logprobs, len(self._echo)) if logprobs else None
        if said is not None and self._prompt:
            said = _joined(echoed_logprobs(self._prompt, self._echo), said)
        return CompletionChoice(
            index=index, text="".join(self._text), logprobs=said, finish_reason=self._reason
        )


def completion(
    identity: Identity, prompts: Sequence[Sequence[Choice]], *, best: int, logprobs: bool
) -> Completion:
    """Put the answers of all prompts together, of each the `best` likeliest ones.

    Usage counts every prompt once, and the answers that were not good enough too.
    """
    kept: list[Choice] = []
    for choices in prompts:
        if len(choices) > best:
            kept += sorted(choices, key=lambda choice: -choice.likelihood)[:best]
        else:
            kept += choices
    return Completion(
        id=identity.id,
        created=identity.created,
        model=identity.model,
        choices=[choice.choice(index, logprobs=logprobs) for index, choice in enumerate(kept)],
        usage=summed_usage([[choice.usage for choice in choices] for choices in prompts]),
        system_fingerprint=identity.system_fingerprint,
    )


def summed_usage(prompts: Sequence[Sequence[Usage]]) -> ChatUsage:
    """Add up the usage of several prompts, each with the usages of its answers."""
    each = [joint_usage(list(usages)) for usages in prompts]
    details = [(one.prompt_tokens_details, one.completion_tokens_details) for one in each]
    return ChatUsage(
        sum(one.prompt_tokens for one in each),
        sum(one.completion_tokens for one in each),
        sum(one.total_tokens for one in each),
        type(details[0][0])(sum(prompt.cached_tokens for prompt, _ in details)),
        type(details[0][1])(sum(answer.reasoning_tokens for _, answer in details)),
    )


def wire_logprobs(tokens: Sequence[TokenLogprob], offset: int) -> CompletionLogprobs:
    """Put log probabilities into parallel lists; the first token begins at `offset`."""
    offsets: list[int] = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    return CompletionLogprobs(
        tokens=[token.text for token in tokens],
        token_logprobs=[_finite(token.logprob) for token in tokens],
        top_logprobs=[
            {text: _finite(value) for text, value in (*token.top, (token.text, token.logprob))}
            for token in tokens
        ],
        text_offset=offsets,
    )


def echoed_logprobs(tokens: Sequence[TokenLogprob], text: str) -> CompletionLogprobs:
    """Put a prompt's log probabilities into parallel lists, with their places in its text.

    A token that is not in the text, such as one that begins every text, takes no place.
    """
    offset, offsets = 0, list[int]()
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text) if text.startswith(token.text, offset) else 0
    said = wire_logprobs(tokens, 0)
    return CompletionLogprobs(
        tokens=said.tokens,
        token_logprobs=[None, *said.token_logprobs[1:]],
        top_logprobs=[None, *said.top_logprobs[1:]],
        text_offset=offsets,
    )


def _joined(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    return CompletionLogprobs(
        tokens=first.tokens + second.tokens,
        token_logprobs=first.token_logprobs + second.token_logprobs,
        top_logprobs=first.top_logprobs + second.top_logprobs,
        text_offset=first.text_offset + second.text_offset,
    )


def _finite(logprob: float) -> float:
    # JSON has no infinity; the floor is the one clients know.
    return max(logprob, _LEAST_LOGPROB)


class CompletionChunks:
    """Make the stream of one choice: everything that never changes is encoded once."""

    def __init__(
        self, identity: Identity, index: int, *, include_usage: bool, logprobs: bool
    ) -> None:
        """Encode what all chunks of the choice share."""
        usage = b',"usage":null' if include_usage else b""
        self._head = _chunk_head(identity) + usage
        self._head += b',"choices":[{"index":%d,"text":' % index
        self._logprobs = logprobs
        self._offset = 0

    def echo(self, text: str, tokens: Sequence[TokenLogprob] = ()) -> bytes:
        """Frame the prompt's text, with the log probabilities of its tokens when there are any."""
        self._offset += len(text)
        said = _encode(echoed_logprobs(tokens, text)) if tokens else b"null"
        return self._framed(text, said, b"null")

    def chunk(self, event: GenerationEvent) -> bytes | None:
        """Frame one event; an event that says nothing on the wire gives nothing."""
        if isinstance(event, TextDelta):
            if not event.text and not (self._logprobs and event.logprobs):
                return None
            return self._framed(event.text, self._with_logprobs(event.logprobs), b"null")
        if isinstance(event, Finished):
            return self._framed("", b"null", b'"%b"' % event.reason.encode())
        return None

    def _framed(self, text: str, logprobs: bytes, reason: bytes) -> bytes:
        rest = b',"logprobs":%b,"finish_reason":%b}]}\n\n' % (logprobs, reason)
        return self._head + _encode(text) + rest

    def _with_logprobs(self, tokens: Sequence[TokenLogprob]) -> bytes:
        if not self._logprobs or not tokens:
            return b"null"
        said = wire_logprobs(tokens, self._offset)
        self._offset += sum(len(token.text) for token in tokens)
        return _encode(said)


def completion_usage_chunk(identity: Identity, prompts: Sequence[Sequence[Usage]]) -> bytes:
    """Frame the one chunk that carries the usage and no choice."""
    usage = _encode(summed_usage(prompts))
    return _chunk_head(identity) + b',"choices":[],"usage":' + usage + b"}\n\n"


def _chunk_head(identity: Identity) -> bytes:
    shared: dict[str, Any] = {
        "id": identity.id,
        "object": "text_completion",
        "created": identity.created,
        "model": identity.model,
        "system_fingerprint": identity.system_fingerprint,
    }
    return b"data: " + _encode(shared)[:-1]
