"""Scripted embedding and rerank models: numbers that follow from the words alone."""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import Any

import msgspec
from pegboard_contracts.encoding import Encoded, EncoderInfo, EncoderInput
from pegboard_contracts.engine import EngineInfo
from pegboard_contracts.errors import ApiError, error_to_wire, invalid_request

from pegboard_backends._scripted.engine import RequestLog, load_as_scripted
from pegboard_backends._scripted.numbers import embedding_vector, rerank_scores
from pegboard_backends._scripted.script import Script

_LOGGED_REQUESTS = 100


class ScriptedEncoder:
    """Encode words. A token id counts as a word of its digits."""

    def __init__(self, script: Script, *, device: str, context_tokens: int) -> None:
        """Start with an empty log."""
        self._dimensions = 0 if script.embedding is None else script.embedding.dimensions
        self._device = device
        self._context_tokens = context_tokens
        self._architecture_tokens = script.context_tokens
        self._batches = 0
        self._log: OrderedDict[int, RequestLog] = OrderedDict()

    def describe(self) -> EngineInfo:
        """Describe the model."""
        return EngineInfo(
            context_tokens=self._context_tokens,
            architecture_context_tokens=self._architecture_tokens,
            device=self._device,
            encoder=EncoderInfo(
                kind="embedding" if self._dimensions else "rerank", dimensions=self._dimensions
            ),
        )

    def encode(self, inputs: list[EncoderInput]) -> list[Encoded]:
        """Encode a batch; see `Encoder.encode`."""
        self._batches += 1
        return [self._encode(one) for one in inputs]

    def _encode(self, one: EncoderInput) -> Encoded:
        words = one.text.split() if one.token_ids is None else [str(i) for i in one.token_ids]
        text = one.text if one.token_ids is None else " ".join(words)
        self._remember(one, text)
        second = (one.second or "").split()
        tokens = len(words) + len(second)
        if tokens > self._context_tokens and not one.truncate:
            return Encoded(error=error_to_wire(self._too_long(tokens)))
        room = max(0, self._context_tokens - len(words))
        if tokens > self._context_tokens:
            text = " ".join(words[: self._context_tokens])
            tokens = self._context_tokens
        if one.second is None:
            vector = embedding_vector(text, self._dimensions)
            return Encoded(struct.pack(f"<{len(vector)}f", *vector), tokens)
        (score,) = rerank_scores(text, [" ".join(second[:room])])
        return Encoded(struct.pack("<f", score), tokens)

    def _too_long(self, tokens: int) -> ApiError:
        return invalid_request(
            f"This input has {tokens} tokens and the model takes {self._context_tokens}; shorten "
            "it, or allow 'truncate'.",
            code="context_length_exceeded",
        )

    def _remember(self, one: EncoderInput, text: str) -> None:
        log = self._log.get(one.group)
        if log is None:
            log = self._log[one.group] = RequestLog(input=[], status="finished")
            if one.second is not None:
                log.input = [text]
            while len(self._log) > _LOGGED_REQUESTS:
                self._log.popitem(last=False)
        if log.input is not None:
            log.input.append(text if one.second is None else one.second)

    def inspect(self) -> dict[str, Any]:
        """Return the last hundred requests, oldest first, and how many batches there were."""
        requests = [msgspec.to_builtins(log) for log in self._log.values()]
        return {"requests": requests, "running": 0, "batches": self._batches}

    def close(self) -> None:
        """Forget every request."""
        self._log.clear()


def open_scripted_encoder(
    script: Script, *, device: str, context_tokens: int | None
) -> ScriptedEncoder:
    """Open the encoder of a script, as slowly or unsuccessfully as the script says."""
    budget = load_as_scripted(script, context_tokens)
    return ScriptedEncoder(script, device=device, context_tokens=budget)
