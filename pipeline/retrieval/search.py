"""The retrieval backend: an encoder for texts, one for relation names, and a reference base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, NonNegativeInt
from pydantic.dataclasses import dataclass

from pipeline.kg.interface import AttributedGraph, KnowledgeGraph
from pipeline.kg.lru import Lru
from pipeline.retrieval.interface import Encoder, Reference
from pipeline.retrieval.nodes import NodeIndex
from pipeline.retrieval.ranking import best
from pipeline.retrieval.references import ReferenceBase
from pipeline.retrieval.relations import RelationIndex
from pipeline.types import RUNTIME_ONLY, EntityId, Question

_MAX_GRAPHS = 64
"""Graphs whose indexes are kept in memory; more than one only if each question has its own graph."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", arbitrary_types_allowed=True))
class Search:
    """The retrieval backend that `retrieval=…` configures.

    The keys are described in `conf/retrieval/dense.yaml` and `conf/retrieval/lexical.yaml`.
    """

    encoder: Encoder
    """For ranking texts, finding references, and searching the nodes of GRBench."""
    relation_encoder: Encoder | None
    """For searching relation names; None takes `encoder`."""
    fusion: Literal["weighted", "rrf"]
    reference_base: Path | None
    """A file written by `kgqa build-references`; None for no references."""
    exact_up_to: NonNegativeInt
    """Nodes above which the search over nodes is approximate."""
    cache_dir: Annotated[Path | None, RUNTIME_ONLY]
    """The folder that stores vectors of relation names and nodes between runs; None keeps them only in memory."""

    async def __aenter__(self) -> Self:
        """Load models and references, to report missing ones before the first question. Raises UserError."""
        for encoder in (self.encoder, self._relation_encoder):
            await encoder.encode([encoder.name])
        _ = self._references
        return self

    async def __aexit__(self, *exc: object) -> None: ...

    def for_graph(self, kg: KnowledgeGraph) -> GraphSearch:
        """Return the search over this graph. An index is built by its first search and shared by all questions."""
        found = self._indexes.get(kg.fingerprint)
        if found is None:
            relations = RelationIndex(kg, self._relation_encoder, fusion=self.fusion, cache_dir=self.cache_dir)
            nodes: dict[bool, NodeIndex] = {}
            if isinstance(kg, AttributedGraph):
                nodes = {labelled: self.node_index(kg, labelled=labelled) for labelled in (False, True)}
            found = relations, nodes
            self._indexes.put(kg.fingerprint, found)
        return GraphSearch(self.encoder, *found, self._references)

    def node_index(self, kg: AttributedGraph, *, labelled: bool) -> NodeIndex:
        """Return the search over the node texts of a graph, with the names of features or without."""
        return NodeIndex(kg, self.encoder, exact_up_to=self.exact_up_to, cache_dir=self.cache_dir, labelled=labelled)

    @property
    def _relation_encoder(self) -> Encoder:
        return self.relation_encoder or self.encoder

    @cached_property
    def _references(self) -> ReferenceBase:
        return ReferenceBase.load(self.reference_base) if self.reference_base else ReferenceBase([])

    @cached_property
    def _indexes(self) -> Lru[str, tuple[RelationIndex, Mapping[bool, NodeIndex]]]:
        return Lru(_MAX_GRAPHS)


@plain_dataclass(frozen=True, slots=True)
class GraphSearch:
    """The searches of `Retrieval` over one graph."""

    encoder: Encoder
    index: RelationIndex
    node_indexes: Mapping[bool, NodeIndex]
    """By whether the texts are labelled; empty for a graph of triples."""
    reference_base: ReferenceBase

    async def rank(self, query: str, texts: Sequence[str]) -> list[int]:
        if not texts:
            return []
        vectors = await self.encoder.encode([query, *texts])
        return best(vectors[1:] @ vectors[0], len(texts))

    async def relations(self, query: str, k: int, *, hybrid: bool = True) -> list[str]:
        return await self.index.search(query, k, hybrid=hybrid)

    async def nodes(self, query: str, k: int, *, labelled: bool = False) -> list[EntityId]:
        return await self.node_indexes[labelled].search(query, k) if self.node_indexes else []

    async def references(
        self, question: Question, k: int, *, random: bool = False, masked: bool = False
    ) -> list[Reference]:
        if random:
            return self.reference_base.sample(question, k)
        return await self.reference_base.nearest(question, k, self.encoder, masked=masked)
