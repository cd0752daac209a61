"""What a model thought in the turns it answered, for clients that send those turns back bare.

A template may render a turn differently with its reasoning; with it back in its place, the
prompt is the one that was generated, and the prefix cache still matches.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from pegboard_contracts.conversation import Message
from pegboard_contracts.generation import GenerationRequest

_OVERHEAD = 96
_MOST_TRACES = 4096
_LARGEST_SHARE = 8


class ReasoningMemory:
    """Remember reasoning within a byte budget; the least recently used goes first.

    A trace is found again by everything that shaped its turn: the model as it was loaded,
    its template variables and tools, the session, every message before it and the answer
    itself. Source: the document's "Streaming Events".
    """

    def __init__(self, max_bytes: int) -> None:
        """Start empty; 0 bytes remember nothing."""
        self._max_bytes = max_bytes
        self._traces: OrderedDict[bytes, str] = OrderedDict()
        self._bytes = 0

    @property
    def enabled(self) -> bool:
        """Tell whether anything is remembered."""
        return self._max_bytes > 0

    def remember(
        self, request: GenerationRequest, session: Sequence[str], text: str, thought: str
    ) -> None:
        """Keep what was thought for the answer `text` to `request`."""
        conversation = request.conversation
        if not thought.strip() or conversation is None:
            return
        if not conversation.messages or conversation.messages[-1].role == "assistant":
            return
        cost = len(thought.encode()) + _OVERHEAD
        if cost > self._max_bytes // _LARGEST_SHARE:
            return
        digest = _beginning(request, session)
        for message in conversation.messages:
            _add(digest, message)
        key = _key(digest, text)
        self._forget(key)
        self._traces[key] = thought
        self._bytes += cost
        while self._bytes > self._max_bytes or len(self._traces) > _MOST_TRACES:
            self._forget(next(iter(self._traces)))

    def filled(self, request: GenerationRequest, session: Sequence[str]) -> GenerationRequest:
        """Give the assistant's bare turns their reasoning back, where it is remembered."""
        conversation = request.conversation
        if conversation is None or not self._traces:
            return request
        digest = _beginning(request, session)
        messages: list[Message] = []
        for message in conversation.messages:
            thought = self._recall(_key(digest, message.text)) if _is_bare(message) else None
            filled = msgspec.structs.replace(message, reasoning=thought) if thought else message
            messages.append(filled)
            _add(digest, message)
        whole = msgspec.structs.replace(conversation, messages=tuple(messages))
        return msgspec.structs.replace(request, conversation=whole)

    def _recall(self, key: bytes) -> str | None:
        thought = self._traces.get(key)
        if thought is not None:
            self._traces.move_to_end(key)
        return thought

    def _forget(self, key: bytes) -> None:
        thought = self._traces.pop(key, None)
        if thought is not None:
            self._bytes -= len(thought.encode()) + _OVERHEAD


def _is_bare(message: Message) -> bool:
    return (
        message.role == "assistant"
        and not message.reasoning
        and not message.tool_calls
        and "<think>" not in message.text
    )


def _beginning(request: GenerationRequest, session: Sequence[str]) -> hashlib.blake2b:
    conversation = request.conversation
    shape = (
        list(session),
        conversation.template_variables if conversation else {},
        conversation.tools if conversation else (),
        request.tool_choice,
        request.reasoning.effort,
    )
    return hashlib.blake2b(msgspec.json.encode(shape), digest_size=32)


def _add(digest: hashlib.blake2b, message: Message) -> None:
    # The reasoning is left out: a client may send it back or not.
    digest.update(msgspec.json.encode(msgspec.structs.replace(message, reasoning=None)) + b"\n")


def _key(digest: hashlib.blake2b, text: str) -> bytes:
    answer = digest.copy()
    answer.update(b"answer:" + text.strip().encode())
    return answer.digest()
