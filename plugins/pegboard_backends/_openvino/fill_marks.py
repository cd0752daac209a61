"""Fill-in-the-middle tokens, found in a vocabulary by the texts that model families give them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pegboard_contracts.engine import FillMarks

Part = Literal["prefix", "suffix", "middle"]

_IN_ORDER: tuple[Part, ...] = ("prefix", "suffix", "middle")
_FAMILIES: tuple[tuple[tuple[Part, ...], tuple[str, ...]], ...] = (
    (_IN_ORDER, ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")),
    (_IN_ORDER, ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")),
    (_IN_ORDER, ("<fim-prefix>", "<fim-suffix>", "<fim-middle>")),
    (_IN_ORDER, ("<|fim▁begin|>", "<|fim▁hole|>", "<|fim▁end|>")),
    (_IN_ORDER, ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>")),
    (_IN_ORDER, ("<PRE>", "<SUF>", "<MID>")),
    (("suffix", "prefix"), ("[SUFFIX]", "[PREFIX]")),
)
_ENDS = (
    "<|endoftext|>",
    "<|fim_pad|>",
    "<fim_pad>",
    "<|file_sep|>",
    "<file_sep>",
    "<|file_separator|>",
    "<|repo_name|>",
    "<EOT>",
)
_WORD_MARK = "▁"
_WIDE_BAR = "\uff5c"


def find_fill_marks(pieces: Iterable[bytes]) -> FillMarks | None:
    """Return the marks of the first family whose tokens all are in a vocabulary, by id."""
    wanted = {text for _, texts in _FAMILIES for text in texts}.union(_ENDS)
    found: dict[str, int] = {}
    shown: dict[str, str] = {}
    for token, piece in enumerate(pieces):
        written = piece.decode(errors="ignore")
        text = written.replace(_WIDE_BAR, "|").strip().removeprefix(_WORD_MARK)
        if text in wanted:
            found[text], shown[text] = token, written
    for parts, texts in _FAMILIES:
        if all(text in found for text in texts):
            ids = (found[text] for text in texts)
            ends = tuple(shown[text] for text in _ENDS if text in found)
            return FillMarks(parts=tuple(zip(parts, ids, strict=True)), ends=ends)
    return None
