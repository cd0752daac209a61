"""The body of a rerank request, and its answer."""

from __future__ import annotations

import secrets
from typing import Annotated, Literal

import msgspec
from pegboard_contracts.encoding import RerankRequest, Scores
from pegboard_contracts.http import RequestModel
from pegboard_contracts.principal import Principal
from pydantic import BeforeValidator, Field, model_validator

_MOST_CHARACTERS = 2_000_000
_MOST_DOCUMENTS = 1024


def _as_object(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


class DocumentText(RequestModel):
    """Carry a document's text."""

    text: str


Document = Annotated[
    DocumentText, BeforeValidator(_as_object, json_schema_input_type=str | DocumentText)
]


class RerankBody(RequestModel):
    """Ask for documents in the order of how well they answer `query`; unknown fields are ignored.

    Documents are texts or objects with `text`, under `documents` or `texts`. They come back
    in the answer when `return_documents` (`return_text`) asks for it. A pair that is longer
    than the model takes is refused unless `truncate` is true.
    """

    model: str = Field(min_length=1)
    query: str = Field(min_length=1)
    documents: list[Document] | None = Field(default=None, min_length=1, max_length=_MOST_DOCUMENTS)
    texts: list[Document] | None = Field(default=None, min_length=1, max_length=_MOST_DOCUMENTS)
    top_n: int | None = Field(default=None, ge=1, lt=2**31)
    return_documents: bool | None = None
    return_text: bool | None = None
    truncate: bool | None = None

    @model_validator(mode="after")
    def _one_list(self) -> RerankBody:
        if (self.documents is None) == (self.texts is None):
            raise ValueError("give either 'documents' or 'texts'")
        if len(self.query) + sum(map(len, self.all_texts)) > _MOST_CHARACTERS:
            raise ValueError(f"query and documents may have {_MOST_CHARACTERS} characters")
        return self

    @property
    def all_texts(self) -> tuple[str, ...]:
        """Return the documents' texts."""
        return tuple(document.text for document in self.documents or self.texts or ())

    @property
    def shows_documents(self) -> bool:
        """Tell whether the documents come back."""
        return bool(self.return_documents or self.return_text)

    def request(self, principal: Principal) -> RerankRequest:
        """Return what the kernel is asked for."""
        return RerankRequest(
            model=self.model,
            query=self.query,
            documents=self.all_texts,
            truncate=bool(self.truncate),
            principal=principal,
        )


class ShownDocument(msgspec.Struct, frozen=True):
    """Carry a document that was asked back."""

    text: str


class RankedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Carry a document's place among those sent, and its score."""

    index: int
    relevance_score: float
    document: ShownDocument | msgspec.UnsetType = msgspec.UNSET


class RerankUsage(msgspec.Struct, frozen=True):
    """Count what the model read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class BilledUnits(msgspec.Struct, frozen=True):
    """Count as Cohere's clients expect it."""

    search_units: int = 1


class RerankMeta(msgspec.Struct, frozen=True):
    """Carry what Cohere's clients read."""

    billed_units: BilledUnits = BilledUnits()


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """List the best documents, the best first; ties keep their order."""

    id: str
    object: Literal["list"] = "list"
    model: str
    results: list[RankedDocument]
    usage: RerankUsage
    meta: RerankMeta = RerankMeta()


class ScoredText(msgspec.Struct, frozen=True, kw_only=True):
    """Carry what clients that send `texts` expect, in a bare list."""

    index: int
    score: float
    text: str | msgspec.UnsetType = msgspec.UNSET


def ranking(body: RerankBody, scores: Scores) -> Ranking | list[ScoredText]:
    """Put scores on the wire: sorted, cut to `top_n`, bare for bodies with `texts`."""
    texts = body.all_texts
    order = sorted(range(len(texts)), key=lambda index: -scores.scores[index])[: body.top_n]
    if body.texts is not None:
        return [
            ScoredText(
                index=index,
                score=scores.scores[index],
                text=texts[index] if body.shows_documents else msgspec.UNSET,
            )
            for index in order
        ]
    return Ranking(
        id=f"rerank-{secrets.token_hex(16)}",
        model=scores.model,
        results=[
            RankedDocument(
                index=index,
                relevance_score=scores.scores[index],
                document=ShownDocument(texts[index]) if body.shows_documents else msgspec.UNSET,
            )
            for index in order
        ],
        usage=RerankUsage(scores.prompt_tokens, scores.prompt_tokens),
    )
