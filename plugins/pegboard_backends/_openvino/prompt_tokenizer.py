"""Prompts to token ids, in the preparer child."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from pegboard_contracts.engine import ConstraintCost, TemplateSource
from pegboard_contracts.errors import invalid_request
from pegboard_contracts.generation import Constraint

from pegboard_backends._openvino import library
from pegboard_backends._openvino.checker import GrammarChecker
from pegboard_backends._openvino.fill_marks import find_fill_marks
from pegboard_backends._openvino.model_files import read_template_source
from pegboard_backends._openvino.token_table import build_token_table

_PROBE = "a"
_PROBES = (30_000, 60_000)
_REMEMBERED_PIECE = 64


class FolderTokenizer:
    """Tokenize with the tokenizer of a folder of OpenVINO IR, and check grammars with it."""

    def __init__(self, folder: Path, cache_dir: Path) -> None:
        """Open the tokenizer; a checker of grammars is kept in `cache_dir` once one is needed.

        Raises `RuntimeError` of GenAI for a broken tokenizer.
        """
        self._folder = folder
        self._cache_dir = cache_dir
        self._checker: GrammarChecker | None = None
        self._tokenizer = library.genai().Tokenizer(str(folder))
        self._table = build_token_table(self._tokenizer)
        self._limit = self._find_limit()

    def source(self) -> TemplateSource:
        """Return the model's template, and which special tokens its prompts are made with."""
        tokenizer = self._tokenizer
        found = read_template_source(
            self._folder,
            embedded=str(tokenizer.get_original_chat_template() or ""),
            bos_token=str(tokenizer.get_bos_token()),
            eos_token=str(tokenizer.get_eos_token()),
        )
        return msgspec.structs.replace(
            found,
            prompt_start=self._prompt_start(),
            fill_marks=find_fill_marks(self._table.pieces),
        )

    def _prompt_start(self) -> tuple[int, ...]:
        """Find what the tokenizer puts in front of a text by itself; what it puts behind is not.

        An answer goes on where the prompt ends.
        """
        plain = self._encode_once(_PROBE)
        whole = self._tokenizer.encode(_PROBE, add_special_tokens=True).input_ids.data[0].tolist()
        for start in range(len(whole) - len(plain) + 1):
            if whole[start : start + len(plain)] == plain:
                return tuple(whole[:start])
        return ()

    def special_texts(self) -> frozenset[str]:
        """Return the texts of all special tokens."""
        return frozenset(self._table.special)

    def encode(self, text: str, literal_mark: str | None = None) -> list[int]:
        """Turn a rendered prompt into token ids; nothing is added and nothing cut.

        A special token's text that `literal_mark` splits becomes ordinary tokens.
        """
        text = text.encode("utf-8", "replace").decode()  # half of a surrogate pair is no text
        if literal_mark is None or literal_mark not in text:
            return self._encode_whole(text)
        ids: list[int] = []
        remembered: dict[str, list[int]] = {}
        for piece in text.split(literal_mark):
            if len(piece) > _REMEMBERED_PIECE:
                ids += self._encode_whole(piece)
                continue
            if piece not in remembered:
                remembered[piece] = self._encode_whole(piece)
            ids += remembered[piece]
        return ids

    def decode(self, token_ids: list[int]) -> str:
        """Turn token ids into text, special tokens included.

        Raises `ApiError` 400 for an id that the vocabulary does not have.
        """
        if token_ids and not (min(token_ids) >= 0 and max(token_ids) < self._table.size):
            message = f"Token ids of this model go from 0 to {self._table.size - 1}."
            raise invalid_request(message, param="prompt", code="invalid_token_id")
        return str(self._tokenizer.decode(token_ids, False)) if token_ids else ""

    def check(self, constraint: Constraint, step_limit: float) -> ConstraintCost:
        """Compile and try a constraint; the first one opens the checker, which takes a second."""
        if self._checker is None:
            self._checker = GrammarChecker(self._tokenizer, self._table, self._cache_dir)
        return self._checker.check(constraint, step_limit)

    def _encode_once(self, text: str) -> list[int]:
        data: Any = self._tokenizer.encode(text, add_special_tokens=False).input_ids.data
        return data[0].tolist() if data.size else []

    def _encode_whole(self, text: str) -> list[int]:
        """Encode in parts where the tokenizer would cut: at blanks, which start most tokens."""
        ids = self._encode_once(text)
        if self._limit is None or len(ids) < self._limit:
            return ids
        middle = text.find(" ", len(text) // 2)
        middle = middle if middle > 0 else len(text) // 2
        if middle <= 0:
            return ids
        return self._encode_whole(text[:middle]) + self._encode_whole(text[middle:])

    def _find_limit(self) -> int | None:
        """Find the length at which this tokenizer cuts in silence, if it does."""
        shorter, longer = (len(self._encode_once(" a" * count)) for count in _PROBES)
        return shorter if shorter == longer else None
