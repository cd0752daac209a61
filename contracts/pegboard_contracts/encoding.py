"""Models that encode instead of generating: texts to vectors, and pairs to scores.

An encoder runs in the engine child. The kernel gathers the inputs of concurrent requests
into batches and hands each batch over with one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from pegboard_contracts.principal import Principal

if TYPE_CHECKING:
    from pegboard_contracts.engine import EngineInfo

ModelKind = Literal["generate", "embedding", "rerank"]
"""What a model can be asked for."""


class EncoderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Describe what an open encoder gives.

    `dimensions` is the length of its vectors. `smaller_dimensions` are the lengths that it
    is trained to be cut to; `None` allows every one. `prompts` are texts that the model
    wants in front of its inputs, by name; `default_prompt` names the one that stands there
    unless another is asked for.
    """

    kind: Literal["embedding", "rerank"]
    dimensions: int = 0
    smaller_dimensions: tuple[int, ...] | None = ()
    prompts: dict[str, str] = {}
    default_prompt: str | None = None


class EncoderInput(msgspec.Struct, frozen=True, array_like=True):
    """Hold one thing to encode: a text, token ids, or a text with a second one behind it.

    Special tokens are added to texts, never to token ids. `truncate` cuts what is longer
    than the model takes instead of refusing it. Inputs of one request share `group`.
    """

    text: str = ""
    token_ids: list[int] | None = None
    second: str | None = None
    truncate: bool = False
    group: int = 0


class Encoded(msgspec.Struct, frozen=True, array_like=True):
    """Carry what one input gave: a vector, or a score, as little-endian 32-bit floats.

    `tokens` counts what the model read, special tokens included. `error` is an `ApiError`
    as `error_to_wire` wrote it, for an input that cannot be encoded; others are not
    disturbed.
    """

    values: bytes = b""
    tokens: int = 0
    error: dict[str, Any] | None = None


class Encoder(Protocol):
    """Encode with one model. Every method is called from the engine child's only thread."""

    def describe(self) -> EngineInfo:
        """Describe the open encoder: `encoder` is set and `context_tokens` is its longest input."""
        ...

    def encode(self, inputs: list[EncoderInput]) -> list[Encoded]:
        """Encode a batch; the results stand in the order of the inputs.

        Scores are what the model's own activation gives, 0 to 1 for most. Raising
        fails every request of the batch.
        """
        ...

    def inspect(self) -> dict[str, Any]:
        """Return plain data for humans and tests: counters of batches and inputs."""
        ...

    def close(self) -> None:
        """Free everything; the process ends after it."""
        ...


class EmbeddingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for the vectors of texts and of token ids.

    `prompt_name` names one of the model's prompts; token ids get none.
    """

    model: str
    inputs: tuple[str | tuple[int, ...], ...]
    dimensions: int | None = None
    truncate: bool = False
    prompt_name: str | None = None
    principal: Principal = Principal()


class Embeddings(msgspec.Struct, frozen=True, kw_only=True):
    """Carry the vectors, in the order of the inputs, as little-endian 32-bit floats."""

    model: str
    vectors: list[bytes]
    prompt_tokens: int


class Embedder(Protocol):
    """Turn inputs into vectors: a service. Runs on the server's event loop."""

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """Embed every input.

        Raises `ApiError`: 400 for an input that is too long, for `dimensions` or a prompt
        that the model does not have; 400 `model_kind_mismatch`; 503 when the queue is full.
        """
        ...


class RerankRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask how well documents answer a query."""

    model: str
    query: str
    documents: tuple[str, ...]
    truncate: bool = False
    principal: Principal = Principal()


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Carry the documents' scores as the model is made to give them, in their order."""

    model: str
    scores: list[float]
    prompt_tokens: int


class Reranker(Protocol):
    """Score documents against a query: a service. Runs on the server's event loop."""

    async def rerank(self, request: RerankRequest) -> Scores:
        """Score every document. Raises `ApiError` as `Embedder.embed` does."""
        ...
