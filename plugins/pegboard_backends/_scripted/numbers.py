"""The vectors and scores of scripted embedding and rerank models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import shake_128


def embedding_vector(text: str, dimensions: int) -> list[float]:
    """Return the unit vector of a text: the same everywhere, near for texts that share words."""
    total = [0.0] * dimensions
    for word in text.split() or [""]:
        digest = shake_128(word.encode(errors="surrogatepass")).digest(2 * dimensions)
        for index in range(dimensions):
            total[index] += int.from_bytes(digest[2 * index : 2 * index + 2], "big") - 32767.5
    length = math.sqrt(sum(value * value for value in total))
    if length == 0.0:
        return [1.0] + [0.0] * (dimensions - 1)
    return [value / length for value in total]


def rerank_scores(query: str, documents: Sequence[str]) -> list[float]:
    """Return for each document the share of the query's words that it contains, 0 to 1."""
    wanted = query.split()
    scores: list[float] = []
    for document in documents:
        present = set(document.split())
        hits = sum(word in present for word in wanted)
        scores.append(hits / len(wanted) if wanted else 0.0)
    return scores


def rerank_order(scores: Sequence[float]) -> list[int]:
    """Return the documents' indices, the best first; ties keep their order."""
    return sorted(range(len(scores)), key=lambda index: -scores[index])
