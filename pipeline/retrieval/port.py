"""The retrieval port: similarity of texts, search over relation names, and the reference base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipeline.kg.port import KnowledgeGraph
from pipeline.types import EntityId, Question

Vectors = npt.NDArray[np.float32]


@runtime_checkable
class Encoder(Protocol):
    """Turns texts into unit vectors. Heavy encoders run off the event loop and batch what arrives together."""

    @property
    def name(self) -> str:
        """What decides the vectors: stored ones are filed under it."""
        ...

    async def encode(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, shape (texts, dimensions)."""
        ...


@dataclass(frozen=True, slots=True)
class Reference:
    """A solved training question (methods.md §7.1)."""

    question: str
    masked_question: str
    """The question with its topic names replaced by `*`."""
    paths: dict[str, str]
    """Topic name → `name -> r1 -> r2`."""
    answers: tuple[str, ...]
    """At most ten."""
    topic_entities: dict[str, str] = field(default_factory=dict)
    """Topic id → name."""


class Retrieval(Protocol):
    """What a method may search in."""

    async def rank(self, query: str, texts: Sequence[str]) -> list[int]:
        """Indices of `texts`, the most similar to `query` first, ties by position."""
        ...

    async def relations(self, query: str, k: int) -> list[str]:
        """The k relations of the graph most similar to `query` by the hybrid score of §8.7, best first."""
        ...

    async def nodes(self, query: str, k: int) -> list[EntityId]:
        """The k nodes whose text is most similar to `query`, best first; none where nodes hold no texts (§6.2)."""
        ...

    async def references(self, question: Question, k: int, *, random: bool = False) -> list[Reference]:
        """The k nearest references (§7.1), or k drawn at random, seeded by the question."""
        ...


class RetrievalBackend(Protocol):
    """What `retrieval=…` builds: opened once per worker, then asked for each graph's search."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

    def for_graph(self, kg: KnowledgeGraph) -> Retrieval:
        """Search over the relations of this graph."""
        ...
