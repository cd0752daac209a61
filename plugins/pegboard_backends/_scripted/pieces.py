"""The pieces of one answer, and where a continuation goes on in them."""

from __future__ import annotations

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

    def resume(self, token_ids: list[int], text: str) -> tuple[int, bytes]:
        """Find where an answer goes on that has given `token_ids`, whose text is `text`.

        Returns the number of pieces that are past, and those first bytes of the next piece
        that are past too. What was given is recognized by ids, else by text; text that was
        appended to it is skipped where it occurs in the pieces that remain.
        """
        past = self._past_by_ids(token_ids)
        content = b"".join(self[i].content for i in range(past))
        given = text.encode()
        if not given.startswith(content.decode(errors="ignore").encode()):
            past, content = self._past_by_text(given)
        appended = given[len(content) :]
        if not appended:
            return past, b""
        return self._skip(past, appended)

    def _past_by_ids(self, token_ids: list[int]) -> int:
        past = 0
        while past < min(len(self), len(token_ids)) and self[past].token_id == token_ids[past]:
            past += 1
        return past

    def _past_by_text(self, given: bytes) -> tuple[int, bytes]:
        past = length = 0
        while past < len(self) and length < len(given):
            if not given.startswith(self[past].content, length):
                break
            length += len(self[past].content)
            past += 1
        return past, given[:length]

    def _skip(self, past: int, appended: bytes) -> tuple[int, bytes]:
        # The rest repeats, so what does not begin within one period does not occur at all.
        ahead = b""
        index = past
        longest = sum(len(piece.content) for piece in self._period) + len(appended)
        while index < len(self) and len(ahead) < longest and longest > len(appended):
            ahead += self[index].content
            index += 1
        found = ahead.find(appended)
        if found < 0:
            return past, b""
        rest = found + len(appended)
        while past < len(self) and rest >= len(self[past].content):
            rest -= len(self[past].content)
            past += 1
        return past, self[past].content[:rest] if rest else b""
