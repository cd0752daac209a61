"""Vectors and scores, for every route that asks for them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pegboard_contracts.encoding import (
    EmbeddingRequest,
    Embeddings,
    Encoded,
    EncoderInfo,
    EncoderInput,
    ModelKind,
    RerankRequest,
    Scores,
)
from pegboard_contracts.errors import ApiError, invalid_request

from pegboard_kernel.encoding.vectors import check_finite, first_value, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegboard_kernel.models.directory import Directory
    from pegboard_kernel.models.record import ModelRecord


class PathEncoder:
    """Encode with loaded models: implements `Embedder` and `Reranker`. Runs on the event loop."""

    def __init__(self, directory: Directory) -> None:
        """Keep what models are found with."""
        self._directory = directory
        self._groups = itertools.count(1)

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """Embed every input; see `Embedder.embed`."""
        record, info = await self._serving(request.model, "embedding")
        _check_dimensions(request.dimensions, info)
        prompt = _prompt(request, info)
        group = next(self._groups)
        inputs = [
            EncoderInput(prompt + one, truncate=request.truncate, group=group)
            if isinstance(one, str)
            else EncoderInput(token_ids=list(one), truncate=request.truncate, group=group)
            for one in request.inputs
        ]
        results = await self._encode(record, inputs, "input")
        vectors = [check_finite(result.values) for result in results]
        if request.dimensions is not None and request.dimensions != info.dimensions:
            vectors = [shortened(vector, request.dimensions) for vector in vectors]
        return Embeddings(model=record.entry.id, vectors=vectors, prompt_tokens=_tokens(results))

    async def rerank(self, request: RerankRequest) -> Scores:
        """Score every document; see `Reranker.rerank`."""
        record, _ = await self._serving(request.model, "rerank")
        group = next(self._groups)
        inputs = [
            EncoderInput(request.query, second=document, truncate=request.truncate, group=group)
            for document in request.documents
        ]
        results = await self._encode(record, inputs, "documents")
        scores = [first_value(check_finite(result.values)) for result in results]
        return Scores(model=record.entry.id, scores=scores, prompt_tokens=_tokens(results))

    async def _serving(self, model: str, kind: ModelKind) -> tuple[ModelRecord, EncoderInfo]:
        directory = self._directory
        record = directory.record(model, kind)
        directory.check_kind(record, kind)
        loaded = await directory.serving(record)
        directory.check_kind(record, kind)
        info = loaded.pair.info.encoder
        if info is None:
            raise TypeError(f"the encoder of '{record.entry.id}' does not describe itself")
        return record, info

    async def _encode(
        self, record: ModelRecord, inputs: Sequence[EncoderInput], param: str
    ) -> list[Encoded]:
        loaded = await self._directory.serving(record)
        with loaded.pair.lease() as pair:
            results = await pair.batches.encode(inputs, param=param)
        record.answered()
        return results


def _tokens(results: Sequence[Encoded]) -> int:
    return sum(result.tokens for result in results)


def _check_dimensions(asked: int | None, info: EncoderInfo) -> None:
    if asked is None or asked == info.dimensions:
        return
    smaller = info.smaller_dimensions
    if asked > info.dimensions:
        message = f"This model's vectors have {info.dimensions} dimensions; ask for no more."
    elif smaller is None or asked in smaller:
        return
    elif smaller:
        sizes = ", ".join(map(str, (*smaller, info.dimensions)))
        message = f"This model's vectors can have {sizes} dimensions."
    else:
        message = (
            f"This model's vectors have {info.dimensions} dimensions and are not made to be "
            "cut. Leave 'dimensions' out, or allow it with the option 'smaller_dimensions' of "
            "the model's catalogue entry."
        )
    raise invalid_request(message, param="dimensions", code="unsupported_dimensions")


def _prompt(request: EmbeddingRequest, info: EncoderInfo) -> str:
    name = request.prompt_name
    if name is None:
        return info.prompts.get(info.default_prompt or "", "")
    if any(not isinstance(one, str) for one in request.inputs):
        message = "A prompt can stand in front of texts only, not of token ids."
        raise invalid_request(message, param="prompt_name")
    if name not in info.prompts:
        known = ", ".join(f"'{known}'" for known in sorted(info.prompts)) or "none"
        message = f"This model has no prompt of that name. It has: {known}."
        raise ApiError(400, message, param="prompt_name", code="unknown_prompt")
    return info.prompts[name]
