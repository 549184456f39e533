"""Scores relations and entities without a model, for `prune=bm25` and `prune=encoder` (specification §6.13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from pipeline.retrieval.bm25 import Bm25
from pipeline.retrieval.interface import Retrieval

Prune: TypeAlias = Literal["llm", "bm25", "encoder"]
"""What scores relations and entities."""


async def similarity_scores(
    question: str, texts: Sequence[str], by: Literal["bm25", "encoder"], retrieval: Retrieval
) -> tuple[float, ...]:
    """Return the similarity of each text to the question; the scores sum to 1.

    BM25 scores are normalised; they are all equal if no text shares a word with the question. The encoder gives only a
    ranking, so the weights are 1, 1/2, 1/3 and so on, from the best text on.
    """
    if by == "bm25":
        weights = [float(score) for score in Bm25(texts).scores(question)]
    else:
        ranking = await retrieval.rank(question, texts)
        weights = [1 / (1 + ranking.index(index)) for index in range(len(texts))]
    total = sum(weights)
    return tuple(weight / total if total else 1 / len(texts) for weight in weights)
