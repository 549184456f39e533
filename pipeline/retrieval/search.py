"""What `retrieval=` configures: one encoder for texts, one for relation names, and a reference base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.kg.port import AttributedGraph, KnowledgeGraph
from pipeline.retrieval.lru import Lru
from pipeline.retrieval.nodes import NodeIndex
from pipeline.retrieval.port import Encoder, Reference
from pipeline.retrieval.ranking import best
from pipeline.retrieval.references import ReferenceBase
from pipeline.retrieval.relations import RelationIndex
from pipeline.types import EntityId, Question

_GRAPHS = 64
"""Graphs whose relation index is kept; more than one only where each question has its own."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", arbitrary_types_allowed=True))
class Search:
    """The retrieval backend. `for_graph` gives what a method sees."""

    encoder: Encoder
    """Ranks texts, finds references, and searches the nodes of GRBench."""
    relation_encoder: Encoder | None = None
    """Searches relation names; None takes `encoder`."""
    fusion: Literal["weighted", "rrf"] = "weighted"
    reference_base: Path | None = None
    """A file made by `kgqa references`; None for no references."""
    cache_dir: Path | None = None
    """Where vectors of relation names and of nodes are kept between runs; None keeps them in memory only."""

    async def __aenter__(self) -> Self:
        """Load models and references, so that what is missing is missed before the first question. Raises UserError."""
        for encoder in (self.encoder, self._relation_encoder):
            await encoder.encode([encoder.name])
        await self._references.prepare(self.encoder)
        return self

    async def __aexit__(self, *exc: object) -> None: ...

    def for_graph(self, kg: KnowledgeGraph) -> GraphSearch:
        """Search over the relations and nodes of this graph; an index is built by its first search, shared by all."""
        found = self._indexes.get(kg.fingerprint)
        if found is None:
            relations = RelationIndex(kg, self._relation_encoder, fusion=self.fusion, cache_dir=self.cache_dir)
            nodes = NodeIndex(kg, self.encoder, cache_dir=self.cache_dir) if isinstance(kg, AttributedGraph) else None
            found = relations, nodes
            self._indexes.put(kg.fingerprint, found)
        return GraphSearch(self.encoder, *found, self._references)

    @property
    def _relation_encoder(self) -> Encoder:
        return self.relation_encoder or self.encoder

    @cached_property
    def _references(self) -> ReferenceBase:
        return ReferenceBase.load(self.reference_base) if self.reference_base else ReferenceBase([])

    @cached_property
    def _indexes(self) -> Lru[str, tuple[RelationIndex, NodeIndex | None]]:
        return Lru(_GRAPHS)


@plain_dataclass(frozen=True, slots=True)
class GraphSearch:
    """What a method may search in: texts of its own, the relations and nodes of one graph, and the references."""

    encoder: Encoder
    index: RelationIndex
    node_index: NodeIndex | None
    reference_base: ReferenceBase

    async def rank(self, query: str, texts: Sequence[str]) -> list[int]:
        """Indices of `texts`, the most similar to `query` first, ties by position."""
        if not texts:
            return []
        vectors = await self.encoder.encode([query, *texts])
        return best(vectors[1:] @ vectors[0], len(texts))

    async def relations(self, query: str, k: int) -> list[str]:
        """The k relations of the graph most similar to `query` by the hybrid score of §8.7, best first."""
        return await self.index.search(query, k)

    async def nodes(self, query: str, k: int) -> list[EntityId]:
        """The k nodes whose text is most similar to `query`, best first; none where nodes hold no texts."""
        return await self.node_index.search(query, k) if self.node_index else []

    async def references(self, question: Question, k: int, *, random: bool = False) -> list[Reference]:
        """The k nearest references (§7.1), or k drawn at random; none when no reference base is configured."""
        if random:
            return self.reference_base.sample(question, k)
        return await self.reference_base.nearest(question, k, self.encoder)
