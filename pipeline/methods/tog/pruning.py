"""Scores without a model: what `prune=bm25` and `prune=encoder` replace the scoring calls by (methods.md §6.13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from pipeline.retrieval.bm25 import Bm25
from pipeline.retrieval.port import Retrieval

Prune: TypeAlias = Literal["llm", "bm25", "encoder"]
"""Who scores relations and entities."""


async def similarity_scores(
    question: str, texts: Sequence[str], by: Literal["bm25", "encoder"], retrieval: Retrieval
) -> tuple[float, ...]:
    """How similar each text is to the question; the scores add up to 1.

    BM25 shares them out by its own scores, all alike where no text has a word of the question. An encoder is asked for
    a ranking only, so the best text weighs 1, the next 1/2, 1/3 and so on.
    """
    if by == "bm25":
        weights = [float(score) for score in Bm25(texts).scores(question)]
    else:
        ranking = await retrieval.rank(question, texts)
        weights = [1 / (1 + ranking.index(place)) for place in range(len(texts))]
    total = sum(weights)
    return tuple(weight / total if total else 1 / len(texts) for weight in weights)
