"""Search over the relation names of a graph, hybrid or by the encoder alone (specification §8.7)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.kg.interface import KnowledgeGraph
from pipeline.kg.lru import Lru
from pipeline.retrieval.bm25 import Bm25
from pipeline.retrieval.interface import Encoder, Vectors
from pipeline.retrieval.ranking import best
from pipeline.retrieval.stored import encode_stored, file_name

Fusion: TypeAlias = Literal["weighted", "rrf"]
Scores: TypeAlias = Mapping[int, float]
"""Position of a relation → score."""

DEPTH = 10
"""Relations that each of the two rankings contributes; together they give 10 to 20 (specification §8.7)."""
_BM25_WEIGHT = 0.1
_RRF_CONSTANT = 60
_CACHED_SEARCHES = 10_000


class RelationIndex:
    """Search over the relations of one graph. The first search builds the index."""

    def __init__(
        self, kg: KnowledgeGraph, encoder: Encoder, *, fusion: Fusion = "weighted", cache_dir: Path | None = None
    ) -> None:
        """Describe the index; nothing is read yet. Vectors are stored in `cache_dir`; None does not store them."""
        self._kg = kg
        self._encoder = encoder
        self._fuse = _FUSIONS[fusion]
        self._cache_dir = cache_dir
        self._built: _Built | None = None
        self._building = asyncio.Lock()
        self._found: Lru[tuple[str, int], list[str]] = Lru(_CACHED_SEARCHES)

    async def search(self, query: str, k: int, *, hybrid: bool = True) -> list[str]:
        """Return at most k relation names, best first, equal scores by name. A query that is one of them comes first.

        So a name without words, or with the words of another, is found by itself. Without `hybrid`, the encoder alone
        decides.
        """
        text = as_text(query)
        index = self._built or await self._index()
        nearest = 0 if hybrid else k
        if (found := self._found.get((text, nearest))) is None:
            vector = (await self._encoder.encode([text]))[0]
            found = await asyncio.to_thread(self._search, index, text, vector, nearest)
            self._found.put((text, nearest), found)
        if query in index.known:
            found = [query, *(name for name in found if name != query)]
        return found[:k]

    def _search(self, index: _Built, text: str, vector: Vectors, nearest: int) -> list[str]:
        """Return the names by the score of the encoder if `nearest` says how many, else by the hybrid one."""
        if not index.names:
            return []
        similarity = index.vectors @ vector
        if nearest:
            return [index.names[position] for position in best(similarity, nearest)]
        dense = _top(similarity)
        sparse = {position: score for position, score in _top(index.bm25.scores(text)).items() if score > 0}
        fused = self._fuse(dense, sparse)
        order = sorted(fused, key=lambda position: (-round(fused[position], 5), position))
        return [index.names[position] for position in order]

    async def _index(self) -> _Built:
        async with self._building:
            if self._built is None:
                names = await self._kg.relation_names()
                texts = [as_text(name) for name in names]
                bm25 = await asyncio.to_thread(Bm25, texts)
                self._built = _Built(names, frozenset(names), await self._encode(texts), bm25)
        return self._built

    async def _encode(self, texts: list[str]) -> Vectors:
        if self._cache_dir is None or not texts:
            return await self._encoder.encode(texts)
        path = self._cache_dir.expanduser() / f"relations-{file_name(self._encoder, texts)}"
        return await encode_stored(self._encoder, texts, path)


@dataclass(frozen=True, slots=True)
class _Built:
    names: list[str]
    """The relation names, sorted."""
    known: frozenset[str]
    """The same names, to look one up."""
    vectors: Vectors
    bm25: Bm25


def as_text(relation: str) -> str:
    """Return a relation name as words: dots and underscores become spaces."""
    return " ".join(relation.replace(".", " ").replace("_", " ").split())


def fuse_weighted(dense: Scores, sparse: Scores) -> dict[int, float]:
    """Return `dense + 0.1 · bm25`. A relation missing in one ranking gets the smallest score of that ranking."""
    least_dense, least_sparse = min(dense.values(), default=0.0), min(sparse.values(), default=0.0)
    return {
        position: dense.get(position, least_dense) + _BM25_WEIGHT * sparse.get(position, least_sparse)
        for position in dense.keys() | sparse.keys()
    }


def fuse_rrf(dense: Scores, sparse: Scores) -> dict[int, float]:
    """Return the reciprocal rank fusion: the sum of 1 / (60 + rank) over the rankings that contain the relation."""
    fused: dict[int, float] = {}
    for ranking in (dense, sparse):
        for rank, position in enumerate(ranking, start=1):
            fused[position] = fused.get(position, 0.0) + 1 / (_RRF_CONSTANT + rank)
    return fused


_FUSIONS = {"weighted": fuse_weighted, "rrf": fuse_rrf}


def _top(scores: npt.NDArray[np.floating[Any]]) -> dict[int, float]:
    """Return the best `DEPTH` positions with their scores, best first."""
    return {position: float(scores[position]) for position in best(scores, DEPTH)}
