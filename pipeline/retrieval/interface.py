"""The interfaces of retrieval: text similarity, search over relations and nodes, and the reference base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipeline.kg.interface import KnowledgeGraph
from pipeline.types import EntityId, Question

Vectors = npt.NDArray[np.float32]


@runtime_checkable
class Encoder(Protocol):
    """Encodes texts as vectors, whose inner products are the similarities of the texts."""

    @property
    def name(self) -> str:
        """The key of stored vectors: encoders with the same name give the same vectors."""
        ...

    async def encode(self, texts: Sequence[str]) -> Vectors:
        """Return a vector per text, shape (texts, dimensions): unit vectors if similarity is the cosine."""
        ...


@dataclass(frozen=True, slots=True)
class Reference:
    """A solved training question (specification §7.1)."""

    question: str
    masked_question: str
    """The question with the names of its topic entities replaced by `*`."""
    paths: dict[str, str]
    """Topic name → `name -> r1 -> r2`."""
    answers: tuple[str, ...]
    """At most ten answers."""
    topic_entities: dict[str, str] = field(default_factory=dict)
    """Topic id → name."""


class Retrieval(Protocol):
    """The searches that a method can make."""

    async def rank(self, query: str, texts: Sequence[str]) -> list[int]:
        """Return the indices of `texts` by similarity to `query`, best first, ties by position."""
        ...

    async def relations(self, query: str, k: int, *, hybrid: bool = True) -> list[str]:
        """Return the k relations of the graph that are most similar to `query`, best first (§8.7).

        The score is that of the encoder with that of BM25; without `hybrid`, that of the encoder alone, as in `rank`.
        """
        ...

    async def nodes(self, query: str, k: int, *, labelled: bool = False) -> list[EntityId]:
        """Return the k nodes whose texts are most similar to `query`, best first; none if there are no texts (§6.2).

        With `labelled`, the texts are all features that are searched, each with its name (§16.1).
        """
        ...

    async def references(
        self, question: Question, k: int, *, random: bool = False, masked: bool = False
    ) -> list[Reference]:
        """Return the k nearest references (§7.1), or k random ones; never the question itself.

        The question seeds the random choice. With `masked`, names of topic entities do not count in the comparison.
        """
        ...


class RetrievalBackend(Protocol):
    """A retrieval backend, as `retrieval=…` configures it. Opened once per worker."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

    def for_graph(self, kg: KnowledgeGraph) -> Retrieval:
        """Return the search over this graph."""
        ...
