"""Inputs of an encoder to token ids, many at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from pegboard_contracts.encoding import EncoderInput
from pegboard_contracts.errors import ApiError, error_to_wire, invalid_request

from pegboard_backends._openvino import library


class TokenizedInput(msgspec.Struct, frozen=True):
    """Carry the ids of one input; those from `second_start` on belong to a second text."""

    ids: list[int]
    second_start: int


class EncoderTokenizer:
    """Tokenize with the tokenizer of a folder of OpenVINO IR, special tokens included.

    Special tokens' text inside a text is read as special, as the models' own library does.
    """

    def __init__(
        self, folder: Path, *, max_tokens: int, vocabulary: int | None, pairs: bool
    ) -> None:
        """Open the tokenizer. Raises `ApiError` 400 when `pairs` are wanted and not known to it."""
        self._tokenizer = library.genai().Tokenizer(str(folder))
        self._max_tokens = max_tokens
        self._vocabulary = vocabulary or _vocabulary_of(self._tokenizer)
        if pairs:
            self._check_pairs()

    def _check_pairs(self) -> None:
        try:
            self._tokenizer.encode(["a"], ["b"])
        except RuntimeError:
            message = (
                "This model's tokenizer takes no pairs of texts; export it again with "
                "`convert_tokenizer --number-of-inputs 2`."
            )
            raise invalid_request(message, code="invalid_model_file") from None

    def tokenize(self, inputs: Sequence[EncoderInput]) -> list[TokenizedInput | dict[str, Any]]:
        """Return the ids of every input, or its error as plain data."""
        results: list[TokenizedInput | dict[str, Any]] = [{}] * len(inputs)
        texts = [i for i, one in enumerate(inputs) if one.token_ids is None and one.second is None]
        pairs = [i for i, one in enumerate(inputs) if one.second is not None]
        for index, ids in zip(texts, self._encode([inputs[i].text for i in texts]), strict=True):
            results[index] = self._fitted(inputs[index], TokenizedInput(ids, len(ids)))
        for index, found in zip(pairs, self._encode_pairs([inputs[i] for i in pairs]), strict=True):
            results[index] = self._fitted(inputs[index], found)
        for index, one in enumerate(inputs):
            if one.token_ids is not None:
                given = TokenizedInput(one.token_ids, len(one.token_ids))
                results[index] = self._fitted(one, given)
        return results

    def _fitted(self, one: EncoderInput, found: TokenizedInput) -> TokenizedInput | dict[str, Any]:
        """Check the ids, and cut what is too long when that is allowed."""
        try:
            self._check_ids(one)
            if len(found.ids) <= self._max_tokens:
                return found
            if not one.truncate:
                raise self._too_long(len(found.ids))
        except ApiError as error:
            return error_to_wire(error)
        limit = self._max_tokens
        if one.token_ids is not None:
            return TokenizedInput(one.token_ids[:limit], limit)
        first = [_clean(one.text)]
        second = [] if one.second is None else [[_clean(one.second)]]
        (ids,) = self._rows(first, *second, max_length=limit, truncation=True)
        # A tokenizer that came from a GGUF file cuts nothing.
        ids = ids[:limit]
        return TokenizedInput(ids, ids.index(ids[-1]) + 1)

    def _check_ids(self, one: EncoderInput) -> None:
        ids = one.token_ids
        if ids and not self._vocabulary:
            message = "The files of this model do not tell its vocabulary's size; send texts."
            raise invalid_request(message, code="token_ids_not_supported")
        if ids and not (min(ids) >= 0 and max(ids) < self._vocabulary):
            message = (
                f"Token ids of this model go from 0 to {self._vocabulary - 1}, and these come from "
                "another vocabulary. Send texts; LangChain does with "
                "check_embedding_ctx_length=False."
            )
            raise invalid_request(message, code="invalid_token_id")

    def _too_long(self, tokens: int) -> ApiError:
        return invalid_request(
            f"This input has {tokens} tokens and the model takes {self._max_tokens}; shorten it, "
            "or set 'truncate' to true to have its end cut off.",
            code="context_length_exceeded",
        )

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return self._rows([_clean(text) for text in texts]) if texts else []

    def _encode_pairs(self, pairs: list[EncoderInput]) -> list[TokenizedInput]:
        if not pairs:
            return []
        firsts = [_clean(pair.text) for pair in pairs]
        alone = list(dict.fromkeys(firsts))
        lengths = dict(zip(alone, map(len, self._rows(alone)), strict=True))
        rows = self._rows(firsts, [_clean(pair.second or "") for pair in pairs])
        return [
            TokenizedInput(ids, lengths[first]) for first, ids in zip(firsts, rows, strict=True)
        ]

    def _rows(
        self,
        firsts: list[str],
        seconds: list[str] | None = None,
        **limits: Any,  # noqa: ANN401 - GenAI's
    ) -> list[list[int]]:
        texts = [firsts]
        if seconds is not None:
            # The tokenizer fails on pairs of which nothing is left at all: one more has some.
            texts = [[*firsts, "a"], [*seconds, "a"]]
        found = self._tokenizer.encode(*texts, **limits)
        ids, mask = found.input_ids.data, found.attention_mask.data
        if not ids.size:
            return [[] for _ in firsts]
        rows = [row[kept].tolist() for row, kept in zip(ids, mask.astype(bool), strict=True)]
        return rows[: len(firsts)]


def _vocabulary_of(tokenizer: Any) -> int:  # noqa: ANN401 - GenAI's
    """Return how many tokens a tokenizer knows; 0 when it cannot tell, without a detokenizer."""
    try:
        return len(tokenizer.get_vocab())
    except RuntimeError:
        return 0


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # half of a surrogate pair is no text
