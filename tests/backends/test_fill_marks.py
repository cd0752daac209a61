"""Fill-in-the-middle tokens in the vocabularies of model families."""

from __future__ import annotations

import pytest
from pegboard_backends._openvino.fill_marks import find_fill_marks

VOCABULARIES: list[tuple[list[str], list[str], tuple[str, ...]]] = [
    (
        ["<|endoftext|>", "<|fim_prefix|>", "x", "<|fim_middle|>", "<|fim_suffix|>"],
        ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
        ("<|endoftext|>",),
    ),
    (
        ["<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<file_sep>"],
        ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
        ("<file_sep>",),
    ),
    ([" <PRE>", " <MID>", " <SUF>", " <EOT>"], [" <PRE>", " <SUF>", " <MID>"], (" <EOT>",)),
    (["▁<PRE>", "▁<SUF>", "▁<MID>"], ["▁<PRE>", "▁<SUF>", "▁<MID>"], ()),
    (
        ["<\uff5cfim▁begin\uff5c>", "<\uff5cfim▁hole\uff5c>", "<\uff5cfim▁end\uff5c>"],
        ["<\uff5cfim▁begin\uff5c>", "<\uff5cfim▁hole\uff5c>", "<\uff5cfim▁end\uff5c>"],
        (),
    ),
    (["[PREFIX]", "[SUFFIX]", "[MIDDLE]"], ["[SUFFIX]", "[PREFIX]"], ()),
]


@pytest.mark.parametrize(("vocabulary", "order", "ends"), VOCABULARIES)
def test_marks_of_families(vocabulary: list[str], order: list[str], ends: tuple[str, ...]) -> None:
    marks = find_fill_marks(piece.encode() for piece in vocabulary)
    assert marks is not None
    assert [vocabulary[token] for _, token in marks.parts] == order
    assert marks.ends == ends


@pytest.mark.parametrize(
    "vocabulary", [[], ["<|endoftext|>"], ["<fim_prefix>", "<fim_suffix>"], ["<PRE>", "<SUF>"]]
)
def test_vocabularies_without_all_marks(vocabulary: list[str]) -> None:
    assert find_fill_marks([b"\xff", *(piece.encode() for piece in vocabulary)]) is None
