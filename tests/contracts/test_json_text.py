"""The JSON scanner: where a value ends, and what comes out of one."""

from __future__ import annotations

import itertools
import json
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_contracts.json_text import JsonScanner, JsonState, string_fragment

_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def _scan(pieces: list[str]) -> tuple[JsonState, str, int]:
    scanner = JsonScanner()
    used = 0
    certain = ""
    for piece in pieces:
        used += scanner.feed(piece)
        certain += scanner.take()
        if scanner.state is not JsonState.OPEN:
            break
    state = scanner.finish()
    return state, certain + scanner.take(), used


@given(_values, st.sampled_from([None, 2]), st.booleans(), st.sampled_from(["", "\n", "</x>", "}"]))
def test_a_value_ends_where_it_ends(
    value: object, indent: int | None, ascii_only: bool, rest: str
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    for pieces in ([text + rest], list(text + rest)):
        state, certain, used = _scan(pieces)
        assert state is JsonState.COMPLETE
        assert used == len(text)
        assert json.loads(certain) == value


@given(
    st.text(alphabet='{}[]",:\\ud8Dc0 1e-.tfnrueals\n', max_size=40),
    st.lists(st.integers(0, 40), max_size=6).map(sorted),
)
def test_any_cut_of_any_text_gives_the_same(text: str, places: list[int]) -> None:
    bounds = [0, *(min(place, len(text)) for place in places), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(bounds)]
    assert _scan(pieces)[:2] == _scan([text])[:2] == _scan(list(text))[:2]
    state, certain, _ = _scan([text])
    if state is JsonState.COMPLETE:
        json.loads(certain)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"a\nb\tc\x01"', "a\nb\tc\x01"),
        (r'"it\'s \d+ C:\new"', "it's \\d+ C:\new"),
        (r'"\ud83d\ude00 \ud83d! \ude00 \ud83d\ud83d\ude00"', "😀 \ufffd! \ufffd \ufffd😀"),
        (r'"\ud83d\n \u12g"', "\ufffd\n \\u12g"),
    ],
)
def test_almost_json_is_mended(text: str, value: str) -> None:
    for pieces in ([text], list(text)):
        state, certain, _ = _scan(pieces)
        assert state is JsonState.COMPLETE
        assert json.loads(certain) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        "{a:1}",
        "{'a':1}",
        "01",
        "1.",
        "-",
        "tru",
        "NaN",
        '{"a" 1}',
        '"a',
        "}",
        "1e",
    ],
)
def test_what_is_no_json_is_invalid(text: str) -> None:
    assert _scan([text])[0] is _scan(list(text))[0] is JsonState.INVALID


def test_depth_and_length_have_limits() -> None:
    assert _scan(["[" * 10_000])[0] is JsonState.INVALID
    assert _scan(["[" * 100 + "]" * 100])[0] is JsonState.COMPLETE
    assert _scan(["9" * 5_000])[0] is JsonState.INVALID


def test_the_rest_of_an_object_is_scanned_from_inside() -> None:
    scanner = JsonScanner(inside="after")
    assert scanner.feed(', "b": [1]} and') == len(', "b": [1]}')
    assert scanner.state is JsonState.COMPLETE
    scanner = JsonScanner(inside="value")
    assert scanner.feed(' 1, "b": {}}}') == len(' 1, "b": {}}')


def test_a_megabyte_is_linear() -> None:
    def cost(size: int) -> float:
        scanner = JsonScanner()
        started = process_time()
        for piece in ['{"a": ["', *['x\\n", "y'] * (size // 8)]:
            scanner.feed(piece)
            scanner.take()
        return process_time() - started

    small = min(cost(1 << 18) for _ in range(3))
    assert min(cost(1 << 20) for _ in range(2)) < 10 * small


@given(st.text())
def test_string_fragments_are_the_inside_of_a_string(text: str) -> None:
    assert json.loads('"' + string_fragment(text) + '"') == text
