"""What each token id stands for: its bytes, and whether it is special.

Built once per process from GenAI's tokenizer and checked against what that tokenizer
itself decodes, so that a vocabulary written in a way we do not know is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

Decode = Callable[[list[int]], str]

_BYTE_PIECE = re.compile(rb"<0x([0-9A-F]{2})>")
_WORD_MARK = "▁".encode()
_SAMPLE = "Hello, world! 12 naïve cafés — 日本語 🙂👩‍👧\n\tdef f(x): return x"


class TokenTable(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the vocabulary.

    `pieces` is indexed by id; `hidden` are the ids that are not shown. `first_space` says
    that the decoder drops a blank at the start of a text. `decode` is set when pieces
    cannot be joined into text, and only decoding whole runs of ids gives it.
    """

    pieces: list[bytes]
    hidden: frozenset[int]
    first_space: bool = False
    decode: Decode | None = None

    @property
    def size(self) -> int:
        """Return how many ids there are."""
        return len(self.pieces)

    @property
    def special(self) -> dict[str, int]:
        """Return the hidden ids by their texts."""
        return {self.pieces[i].decode(): i for i in sorted(self.hidden) if self.pieces[i]}


def build_token_table(tokenizer: Any, also_special: Iterable[int] = ()) -> TokenTable:  # noqa: ANN401 - GenAI's
    """Read the vocabulary of GenAI's tokenizer; takes about 0.1 s for 50,000 tokens.

    `also_special` are further ids never to be shown, such as those that end an answer.
    """
    pieces_by_id = {token_id: piece for piece, token_id in tokenizer.get_vocab().items()}
    ids = range(max(pieces_by_id) + 1)
    shown: list[str] = tokenizer.decode([[token_id] for token_id in ids], False)
    plain: list[str] = tokenizer.decode([[token_id] for token_id in ids], True)
    unseen = {i for i in ids if shown[i] and not plain[i]}
    hidden = frozenset(unseen.union(i for i in also_special if i in ids))
    raw = [pieces_by_id.get(i, shown[i].encode()) for i in ids]
    sample = _sample_ids(tokenizer)
    for pieces in (raw, [_unmarked(piece) for piece in raw]):
        pieces_shown = [shown[i].encode() if i in hidden else pieces[i] for i in ids]
        if _agree(pieces_shown, shown) and _joined(pieces_shown, sample) == _SAMPLE:
            return TokenTable(
                pieces=pieces_shown,
                hidden=hidden,
                first_space=any(
                    piece.startswith(b" ") and not text.startswith(" ")
                    for piece, text in zip(pieces_shown, shown, strict=True)
                ),
            )

    def decode(token_ids: list[int]) -> str:
        return str(tokenizer.decode(token_ids, True))

    pieces_shown = [text.encode() for text in shown]
    return TokenTable(pieces=pieces_shown, hidden=hidden, decode=decode)


def _sample_ids(tokenizer: Any) -> list[int]:  # noqa: ANN401 - GenAI's
    encoded = tokenizer.encode(_SAMPLE, add_special_tokens=False).input_ids.data
    return [int(token_id) for token_id in encoded[0]]


def _unmarked(piece: bytes) -> bytes:
    """Read a piece as SentencePiece writes it."""
    if match := _BYTE_PIECE.fullmatch(piece):
        return bytes([int(match[1], 16)])
    return piece.replace(_WORD_MARK, b" ")


def _agree(pieces: list[bytes], shown: list[str]) -> bool:
    """Compare every piece that is whole characters with what the tokenizer makes of it."""
    for piece, text in zip(pieces, shown, strict=True):
        try:
            ours = piece.decode()
        except UnicodeDecodeError:
            continue
        if text not in (ours, ours.removeprefix(" ")):
            return False
    return True


def _joined(pieces: list[bytes], token_ids: list[int]) -> str:
    # A SentencePiece tokenizer puts a blank before the text, and its decoder takes it away.
    text = b"".join(pieces[token_id] for token_id in token_ids).decode("utf-8", "replace")
    return text if text.startswith(_SAMPLE[0]) else text.removeprefix(" ")
