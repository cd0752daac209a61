"""The pieces of one answer, and where a continuation goes on in them."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from pegboard_backends._scripted.script import Answer, TokenLogprobs

_WORD_WITH_BLANKS = re.compile(r"\s*\S+\s*")


def token_id(content: bytes) -> int:
    """Derive the id of a word or piece: the same in every process, below 2**48."""
    return int.from_bytes(blake2b(content, digest_size=6).digest(), "big")


def echo_pieces(text: str) -> list[str]:
    """Split text into words with the blanks after them; joined they are the text."""
    return _WORD_WITH_BLANKS.findall(text) or ([text] if text else [])


class Piece(NamedTuple):
    """Carry one output token."""

    token_id: int
    content: bytes
    logprobs: TokenLogprobs | None


class Resumption(NamedTuple):
    """Say where an answer goes on.

    `past` pieces are over, and the first `cut` bytes of the next one; `pending` are bytes
    of a character that the past pieces began.
    """

    past: int
    cut: int
    pending: bytes


class Pieces:
    """Hold an answer's pieces, repeated without being copied."""

    def __init__(self, answer: Answer, last_text: str) -> None:
        """Take the scripted pieces, or the words of `last_text`."""
        if answer.pieces is None:
            # An echoed word has the id that it has in the prompt.
            texts = echo_pieces(last_text)
            self._period = [Piece(token_id(t.strip().encode()), t.encode(), None) for t in texts]
        else:
            contents = [
                piece.encode() if isinstance(piece, str) else bytes.fromhex(piece.bytes)
                for piece in answer.pieces
            ]
            chances: Sequence[TokenLogprobs | None] = answer.logprobs or [None] * len(contents)
            self._period = [
                Piece(token_id(b"\0" + content), content, chance)
                for content, chance in zip(contents, chances, strict=True)
            ]
        self._length = len(self._period) * answer.repeat

    def __len__(self) -> int:
        """Count the pieces, repetitions included."""
        return self._length

    def __getitem__(self, index: int) -> Piece:
        """Return the piece at an index from 0."""
        return self._period[index % len(self._period)]

    def resume(self, token_ids: list[int], text: str) -> Resumption:
        """Find where an answer goes on that has given `token_ids`, whose text is `text`.

        What was given is recognized by ids, else by text; text that was appended to it is
        skipped where it occurs in the pieces that remain.
        """
        past = self._past_by_ids(token_ids)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        given = "".join(decoder.decode(self[index].content) for index in range(past))
        if past == len(token_ids) or text == given:
            return Resumption(past, 0, decoder.getstate()[0])
        if text.startswith(given):
            return self._skip(past, text[len(given) :].encode())
        past, length = self._past_by_text(text.encode())
        return self._skip(past, text.encode()[length:])

    def _past_by_ids(self, token_ids: list[int]) -> int:
        past = 0
        while past < min(len(self), len(token_ids)) and self[past].token_id == token_ids[past]:
            past += 1
        return past

    def _past_by_text(self, given: bytes) -> tuple[int, int]:
        past = length = 0
        while past < len(self) and length < len(given):
            if not given.startswith(self[past].content, length):
                break
            length += len(self[past].content)
            past += 1
        return past, length

    def _skip(self, past: int, appended: bytes) -> Resumption:
        # The rest repeats, so what does not begin within one period does not occur at all.
        period = sum(len(piece.content) for piece in self._period)
        ahead = b""
        index = past
        while period and index < len(self) and len(ahead) < period + len(appended):
            ahead += self[index].content
            index += 1
        found = ahead.find(appended)
        if found < 0:
            return Resumption(past, 0, b"")
        rest = found + len(appended)
        while rest and rest >= len(self[past].content):
            rest -= len(self[past].content)
            past += 1
        return Resumption(past, rest, b"")
