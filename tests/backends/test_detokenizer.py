from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_backends._openvino.detokenizer import DetokenizerFactory
from pegboard_backends._openvino.token_table import TokenTable, build_token_table

END, CALL = 256, 257
BYTES = [bytes([value]) for value in range(256)]
BY_BYTES = DetokenizerFactory(
    TokenTable(pieces=[*BYTES, b"<end>", b"<call>"], hidden=frozenset({END, CALL}))
)


def decode(token_ids: list[int]) -> str:
    """Decode as GenAI does: what is no whole character is left out."""
    return bytes(i for i in token_ids if i < 256).decode("utf-8", "ignore")


BY_WINDOW = DetokenizerFactory(
    TokenTable(pieces=[*BYTES, b"<end>", b"<call>"], hidden=frozenset({END, CALL}), decode=decode)
)
FACTORIES = pytest.mark.parametrize("factory", [BY_BYTES, BY_WINDOW], ids=["pieces", "window"])


def cut(text: str, places: list[int]) -> list[bytes]:
    data = text.encode()
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(st.text(), st.lists(st.integers(0, 1000)))
def test_any_cut_into_tokens_gives_the_text_in_whole_characters(
    text: str, places: list[int]
) -> None:
    pieces = cut(text, places)
    detokenizer = DetokenizerFactory(TokenTable(pieces=pieces, hidden=frozenset())).make()
    shown = ""
    for number in range(len(pieces)):
        shown += detokenizer.feed([number])
        assert text.startswith(shown), "nothing is shown that is not there"
        certain = b"".join(pieces[: number + 1]).decode("utf-8", "ignore")
        assert shown == certain, "what is certain is shown at once"
    assert shown == text


@FACTORIES
@given(text=st.text(max_size=20), batch=st.integers(1, 5))
def test_bytes_as_tokens_in_batches(factory: DetokenizerFactory, text: str, batch: int) -> None:
    data = list(text.encode())
    detokenizer = factory.make()
    shown = [detokenizer.feed(data[start : start + batch]) for start in range(0, len(data), batch)]
    assert "".join(shown) == text


@FACTORIES
def test_special_tokens_are_hidden_unless_kept(factory: DetokenizerFactory) -> None:
    token_ids = [*b"a", CALL, *b"b", END]
    assert factory.make().feed(token_ids) == "ab"
    assert factory.make(("<call>", "<other>")).feed(token_ids) == "a<call>b"
    assert factory.make().feed(token_ids) == "ab", "an answer's kept tokens are its own"


@FACTORIES
@given(text=st.text(min_size=1, max_size=8), place=st.integers(0, 40))
def test_a_continuation_goes_on_inside_a_character(
    factory: DetokenizerFactory, text: str, place: int
) -> None:
    data = list(text.encode())
    place %= len(data)
    first = factory.make().feed(data[:place])
    rest = factory.make(answered=data[:place]).feed(data[place:])
    assert first + rest == text


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    detokenizer = BY_BYTES.make()
    shown = [detokenizer.feed([token_id]) for token_id in b"a\xf0\x9fb\xffc"]
    assert "".join(shown) == b"a\xf0\x9fb\xffc".decode("utf-8", "replace")


def test_ids_beyond_the_vocabulary_stand_for_nothing() -> None:
    assert BY_BYTES.make().feed([97, 5000, 98]) == "ab"


class SentencePieces:
    """A tokenizer with the conventions of SentencePiece: marks for blanks, bytes by name."""

    def __init__(self) -> None:
        words = ["▁a", "▁", "b", "<s>", *(f"<0x{value:02X}>" for value in range(256))]
        self._ids = {word: number for number, word in enumerate(words)}

    def get_vocab(self) -> dict[bytes, int]:
        return {word.encode(): number for word, number in self._ids.items()}

    def _join(self, token_ids: list[int], skip: bool) -> str:
        words = {number: word for word, number in self._ids.items()}
        data = b""
        for token_id in token_ids:
            word = words[token_id]
            if word == "<s>":
                data += b"" if skip else b"<s>"
            elif word.startswith("<0x"):
                data += bytes([int(word[3:5], 16)])
            else:
                data += word.replace("▁", " ").encode()
        return data.decode("utf-8", "ignore").removeprefix(" ")

    def decode(self, batch: list[list[int]], skip: bool) -> list[str]:
        return [self._join(token_ids, skip) for token_ids in batch]

    def encode(self, text: str, *, add_special_tokens: bool) -> SentencePieces.Encoded:
        assert not add_special_tokens
        ids = [self._ids[f"<0x{value:02X}>"] for value in text.encode()]
        return self.Encoded([self._ids["▁"], *ids])

    class Encoded:
        def __init__(self, token_ids: list[int]) -> None:
            self.input_ids = self
            self.data = [token_ids]


def test_sentence_pieces_are_understood() -> None:
    table = build_token_table(SentencePieces())
    assert table.decode is None
    assert table.first_space
    assert set(table.special) == {"<s>"}
    detokenizer = DetokenizerFactory(table).make()
    assert [detokenizer.feed([token_id]) for token_id in (3, 0, 2, 0)] == ["", "a", "b", " a"]


def test_a_token_costs_less_than_five_microseconds() -> None:
    detokenizer = BY_BYTES.make()
    best = 1.0
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(2000):
            detokenizer.feed([97])
        best = min(best, (time.perf_counter() - start) / 2000)
    assert best < 5e-6
