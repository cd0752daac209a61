"""Token ids to text as they come, never splitting a character.

This runs for every token of every answer: one list lookup when a token is whole
characters, one call of the C decoder when it is not.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

from pegboard_backends._openvino.token_table import Decode, TokenTable

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class Detokenizer(Protocol):
    """Turn the tokens of one answer into text."""

    def feed(self, token_ids: list[int]) -> str:
        """Return the text that became certain; a character that is not whole is held back."""
        ...


class DetokenizerFactory:
    """Make the detokenizers of one engine."""

    def __init__(self, table: TokenTable) -> None:
        """Prepare the texts that all answers share."""
        self._table = table
        self._special = table.special
        self._texts = lru_cache(maxsize=32)(self._build_texts)
        self._whole = [_whole_text(piece) for piece in table.pieces]

    def make(self, kept_tokens: tuple[str, ...] = (), answered: Iterable[int] = ()) -> Detokenizer:
        """Make the detokenizer of one answer.

        Special tokens are not shown, except those whose texts are `kept_tokens`.
        `answered` are tokens of the same answer that were shown already.
        """
        kept = tuple(sorted(set(kept_tokens) & self._special.keys()))
        detokenizer: Detokenizer
        if self._table.decode is None:
            texts = self._texts(kept)
            detokenizer = PieceDetokenizer(
                texts, self._table.pieces, first_space=self._table.first_space
            )
        else:
            shown = {self._special[text]: text for text in kept}
            detokenizer = WindowDetokenizer(self._table.decode, shown)
        if answered := list(answered):
            detokenizer.feed(answered)
        return detokenizer

    def token_text(self, token_id: int) -> str:
        """Return one token's text by itself, as log probabilities show it."""
        return self._table.pieces[token_id].decode("utf-8", "replace")

    def _build_texts(self, kept: tuple[str, ...]) -> list[str | None]:
        texts = list(self._whole)
        for token_id in self._table.hidden:
            texts[token_id] = texts[token_id] if texts[token_id] in kept else ""
        return texts


def _whole_text(piece: bytes) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None


class PieceDetokenizer:
    """Join pieces of bytes."""

    __slots__ = ("_first_space", "_pending", "_pieces", "_texts")

    def __init__(
        self, texts: list[str | None], pieces: list[bytes], *, first_space: bool = False
    ) -> None:
        """Take each id's text (`None` when it is no whole characters) and its bytes."""
        self._texts = texts
        self._pieces = pieces
        self._pending = b""
        self._first_space = first_space

    def feed(self, token_ids: list[int]) -> str:
        """Return the text that became certain; unknown ids stand for nothing."""
        result = ""
        for token_id in token_ids:
            try:
                text = self._texts[token_id]
            except IndexError:
                continue
            if text is None or self._pending:
                text = self._complete(token_id, text)
            result += text
        if self._first_space and result:
            self._first_space = False
            return result.removeprefix(" ")
        return result

    def _complete(self, token_id: int, text: str | None) -> str:
        if text == "":  # a special token: not shown, and no end of a character
            return ""
        piece = self._pieces[token_id] if text is None else text.encode()
        data = self._pending + piece
        text, used = utf_8_decode(data, "replace", False)
        self._pending = data[used:]
        return text


class WindowDetokenizer:
    """Decode the last few tokens again and again, for vocabularies without known pieces.

    The window begins at a place where the text was whole. Its text is decoded with and
    without the new tokens; the difference is new.
    """

    def __init__(self, decode: Decode, shown: dict[int, str]) -> None:
        """Take the tokenizer's decode (special tokens left out) and the ones to show."""
        self._decode = decode
        self._shown = shown
        self._ids: list[int] = []
        self._settled = 0

    def feed(self, token_ids: list[int]) -> str:
        """Return the text that became certain."""
        result = ""
        for token_id in token_ids:
            if token_id in self._shown:
                result += self._shown[token_id]
                self._ids, self._settled = [], 0
            else:
                self._ids.append(token_id)
                result += self._grown()
        return result

    def _grown(self) -> str:
        before = self._decode(self._ids[: self._settled]) if self._settled else ""
        after = self._decode(self._ids)
        if len(after) <= len(before) or after.endswith(_INCOMPLETE):
            return ""
        self._ids = self._ids[self._settled :]
        self._settled = len(self._ids)
        return after[len(before) :]
