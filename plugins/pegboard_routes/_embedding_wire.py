"""The body of a request for embeddings, and its answer."""

from __future__ import annotations

import base64
import struct
from typing import Annotated, Any, Literal

import msgspec
from pegboard_contracts.encoding import EmbeddingRequest, Embeddings
from pegboard_contracts.http import RequestModel
from pegboard_contracts.principal import Principal
from pydantic import AfterValidator, Field

from pegboard_routes._completion_request import TokenIds

_MOST_CHARACTERS = 2_000_000
_MOST_INPUTS = 256
_MOST_TOKENS = 500_000

Text = Annotated[str, Field(min_length=1, max_length=_MOST_CHARACTERS)]
Inputs = (
    Text
    | Annotated[list[Text], Field(min_length=1)]
    | TokenIds
    | Annotated[list[TokenIds], Field(min_length=1)]
)


def _one_by_one(given: Any) -> tuple[str | tuple[int, ...], ...]:  # noqa: ANN401 - `Inputs`
    if isinstance(given, str):
        return (given,)
    if isinstance(given[0], int):
        return (tuple(given),)
    return tuple(one if isinstance(one, str) else tuple(one) for one in given)


def _bounded(given: Inputs) -> Inputs:
    inputs = _one_by_one(given)
    if len(inputs) > _MOST_INPUTS:
        raise ValueError(f"at most {_MOST_INPUTS} inputs may be sent at once")
    if sum(len(one) for one in inputs if isinstance(one, str)) > _MOST_CHARACTERS:
        raise ValueError(f"all inputs together may have {_MOST_CHARACTERS} characters")
    if sum(len(one) for one in inputs if not isinstance(one, str)) > _MOST_TOKENS:
        raise ValueError(f"all inputs together may have {_MOST_TOKENS} token ids")
    return given


class EmbeddingsBody(RequestModel):
    """Ask for vectors; unknown fields and `user` are ignored.

    `input` is a text, texts, token ids of this model, or lists of them. What is longer than
    the model takes is refused unless `truncate` is true. `prompt_name` names one of the
    model's own prompts, which is put in front of each text.
    """

    model: str = Field(min_length=1)
    input: Annotated[Inputs, AfterValidator(_bounded)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(default=None, ge=1, lt=2**31)
    truncate: bool | None = None
    prompt_name: str | None = None

    @property
    def inputs(self) -> tuple[str | tuple[int, ...], ...]:
        """Return the inputs one by one."""
        return _one_by_one(self.input)

    def request(self, principal: Principal) -> EmbeddingRequest:
        """Return what the kernel is asked for."""
        return EmbeddingRequest(
            model=self.model,
            inputs=self.inputs,
            dimensions=self.dimensions,
            truncate=bool(self.truncate),
            prompt_name=self.prompt_name,
            principal=principal,
        )


class EmbeddingUsage(msgspec.Struct, frozen=True):
    """Count what the model read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class WireEmbedding(msgspec.Struct, frozen=True, kw_only=True):
    """Carry one vector: numbers, or base64 of little-endian 32-bit floats."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingList(msgspec.Struct, frozen=True, kw_only=True):
    """Carry the vectors in the order of the inputs."""

    object: Literal["list"] = "list"
    data: list[WireEmbedding]
    model: str
    usage: EmbeddingUsage


def embedding_list(embeddings: Embeddings, *, as_base64: bool) -> EmbeddingList:
    """Put vectors on the wire."""
    write = _in_base64 if as_base64 else _in_numbers
    return EmbeddingList(
        data=[
            WireEmbedding(index=index, embedding=write(vector))
            for index, vector in enumerate(embeddings.vectors)
        ],
        model=embeddings.model,
        usage=EmbeddingUsage(embeddings.prompt_tokens, embeddings.prompt_tokens),
    )


def _in_base64(vector: bytes) -> str:
    return base64.b64encode(vector).decode()


def _in_numbers(vector: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))
