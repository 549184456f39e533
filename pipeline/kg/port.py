"""The graph port: what a method may ask of a knowledge graph (methods.md §8.2).

Every lookup takes a list and is answered as one batch. Answers are complete for what was asked: an id without
relations maps to an empty list, an unnamed id to None. Lists come back sorted, so two backends over the same facts
give the same answers in the same order (methods.md §2.7).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from pipeline.types import EntityId, Node, Question, Relation

K = TypeVar("K")
V = TypeVar("V")

Hop: TypeAlias = tuple[EntityId, Relation]
"""An entity and a relation to follow from it."""


class Batch(dict[K, V], Generic[K, V]):
    """The answer to one lookup: a mapping from each argument to its value, with how it was come by."""

    queries: int = 0
    """Physical queries sent for this batch; 0 when everything was remembered or shared with another question."""
    endpoint: str | None = None
    """The server that answered (the last one, if several did), or None for a graph in this process."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nodes one hop leads to."""

    nodes: tuple[Node, ...]
    """Sorted, distinct; at most the limit that was asked for."""
    truncated: bool = False
    """True when the graph holds more than `nodes` (a limit of ours or of the server)."""


class KnowledgeGraph(Protocol):
    """A graph backend. Raises ServiceError when it cannot answer; an error is never an empty answer."""

    fingerprint: str
    """Identifies the facts, not the server: two replicas of one database share it. Set once opened."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

    def for_question(self, question: Question) -> KnowledgeGraph:
        """The graph that this question is asked against; itself unless each question has its own."""
        ...

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        """Distinct relations at each entity, both directions, without those of the relation filter (§8.4)."""
        ...

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        """At most `limit` nodes that each hop leads to."""
        ...

    async def labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]:
        """The name of each entity by the order of §8.5, or None for an unnamed one."""
        ...

    async def mediators(self, ids: Sequence[EntityId]) -> Batch[EntityId, bool]:
        """Whether each entity is a mediator (compound value) node by the rule of §8.5."""
        ...

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        """At most `limit` entities that carry exactly each name, in id order."""
        ...

    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        """The types of each entity (`type.object.type`)."""
        ...

    async def vocabulary(self) -> list[str]:
        """All relation names of the graph after the relation filter, sorted."""
        ...


class AttributeLookups(Protocol):
    """What can be asked besides where nodes hold texts and numbers apart from their edges (methods.md §6.2)."""

    async def features(self, ids: Sequence[EntityId]) -> Batch[EntityId, dict[str, Any] | None]:
        """The features of each node by name, or None for an id that is no node."""
        ...

    async def degrees(self, ids: Sequence[EntityId]) -> Batch[EntityId, dict[str, int] | None]:
        """Per edge type that each node lists, how many neighbours; None for an id that is no node."""
        ...


@runtime_checkable
class AttributedGraph(AttributeLookups, Protocol):
    """What a graph of nodes with attributes (GRBench) offers beyond `KnowledgeGraph`."""

    fingerprint: str

    def text_nodes(self) -> Iterator[tuple[EntityId, str]]:
        """Each node that has a text, streamed in a fixed order. Blocks; may run in any thread."""
        ...


class GraphLookups(Protocol):
    """The part of a graph that a method sees: the lookups, counted, budgeted and traced for its question."""

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]: ...
    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]: ...
    async def labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]: ...
    async def mediators(self, ids: Sequence[EntityId]) -> Batch[EntityId, bool]: ...
    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]: ...
    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]: ...


def batch(items: dict[K, V], *, queries: int = 0, endpoint: str | None = None) -> Batch[K, V]:
    """Wrap a plain mapping as a `Batch`."""
    result: Batch[K, V] = Batch(items)
    result.queries = queries
    result.endpoint = endpoint
    return result


def node_order(node: Node) -> tuple[bool, Any, str, str]:
    """Sort key for nodes: entities by id, then literals by value, datatype and language."""
    if isinstance(node, str):
        return (False, node, "", "")
    return (True, node.value, node.datatype or "", node.lang or "")
