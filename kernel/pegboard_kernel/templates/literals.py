"""Keep special token texts inside messages from becoming special tokens.

Text that a user, a tool or a model wrote may look like `<|im_start|>`. It stays visible as
it is, but it must not open a turn. `Literals.protect` puts `LITERAL_MARK` behind the first
character of every such text; the tokenizer drops the mark and encodes what it split as
ordinary text.
"""

from __future__ import annotations

import os.path
import re
from functools import lru_cache
from itertools import groupby, pairwise
from typing import cast

LITERAL_MARK = "\U0010fffd"
"""A private-use character that stands nowhere else in a rendered prompt."""

CUT_MARK = "\U0010fffc"
"""Stands behind the last assistant text while a prompt that continues it is rendered."""

# Surrogates come from JSON escapes in call arguments; no tokenizer can encode them.
_FORBIDDEN = re.compile(f"[{LITERAL_MARK}{CUT_MARK}\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


class Literals:
    """Protect text from one set of special token texts. Immutable, linear in the text.

    A special text may also be put together by a template, from two messages or from its
    own text and a message. So an end of a text that could begin a special text is split
    too, and a beginning that could end one.
    """

    def __init__(self, special_texts: frozenset[str]) -> None:
        """Compile the set; texts of one character cannot be split and are left alone."""
        texts = sorted(text for text in special_texts if len(text) > 1)
        self._starts = re.compile(f"(?={_any_of(texts)})") if texts else None
        self._longest = max(map(len, texts), default=0)
        self._heads = frozenset(text[:end] for text in texts for end in range(1, len(text)))
        # A tail of one character is left alone: a quote that starts with `>` is everyday text.
        self._tails = frozenset(text[start:] for text in texts for start in range(1, len(text) - 1))

    def protect(self, text: str) -> str:
        """Return the text with a mark inside everything that could be a special text.

        Marks that the text brings along become U+FFFD, and so do lone surrogates.
        """
        text = _FORBIDDEN.sub(_REPLACEMENT, text)
        if self._starts is None:
            return text
        places = {match.start() + 1 for match in self._starts.finditer(text)}
        reach = min(len(text), self._longest)
        places.update(
            start + 1
            for start in range(len(text) - reach, len(text))
            if text[start:] in self._heads
        )
        if any(text[:end] in self._tails for end in range(2, reach + 1)):
            places.add(1)
        return _with_marks(text, sorted(places))

    def protect_all(self, value: object) -> object:
        """Return plain data with every text in it protected, keys too."""
        if isinstance(value, str):
            return self.protect(value)
        if isinstance(value, dict):
            pairs = cast("dict[str, object]", value).items()
            return {self.protect(key): self.protect_all(item) for key, item in pairs}
        if isinstance(value, list | tuple):
            return [self.protect_all(item) for item in cast("list[object]", value)]
        return value


@lru_cache(maxsize=16)
def literals_of(special_texts: frozenset[str]) -> Literals:
    """Return the compiled set; made once for each tokenizer."""
    return Literals(special_texts)


def _with_marks(text: str, places: list[int]) -> str:
    """Insert a mark at each place."""
    if not places:
        return text
    edges = [0, *places, len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    return LITERAL_MARK.join(pieces)


def _any_of(texts: list[str]) -> str:
    """Write a pattern that matches where any of the sorted texts starts.

    It branches by character: a tokenizer may have thousands of special texts, and trying
    them one by one at each `<` would let a message stall the preparer.
    """
    if "" in texts:
        return ""
    branches: list[str] = []
    for _, group in groupby(texts, key=lambda text: text[0]):
        members = list(group)
        common = os.path.commonprefix(members)  # noqa: RUF071 - characters are meant
        rest = _any_of([member[len(common) :] for member in members])
        branches.append(re.escape(common) + rest)
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
