"""The interface of knowledge graphs: the lookups that methods use and that backends implement (specification §8.2).

Every lookup takes a list and is answered as one batch, which has a value for every argument: an empty list for an id
without relations, None for an id without a name. Lists are sorted, so that two backends over the same facts give the
same answers in the same order (specification §2.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from pipeline.datasets.inverses import Inverses
from pipeline.rdf_terms import Terms
from pipeline.types import EntityId, Node, Question, Relation

K = TypeVar("K")
V = TypeVar("V")

Hop: TypeAlias = tuple[EntityId, Relation]
"""An entity and the relation to follow from it."""


class Batch(dict[K, V], Generic[K, V]):
    """The result of one lookup: a mapping from each argument to its value, and the cost of the lookup."""

    queries: int = 0
    """Queries that the graph received for this batch; 0 if everything was cached or shared with another question.

    A graph in this process counts 1, and `mediators` on it 1 for each lookup that it makes.
    """
    endpoint: str | None = None
    """URL of the server that answered last; None for a graph in this process."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nodes that one hop leads to."""

    nodes: tuple[Node, ...]
    """Sorted and distinct, at most as many as the limit."""
    truncated: bool = False
    """Whether the hop leads to more nodes than these, which were cut by our limit or the server's."""


class GraphLookups(Protocol):
    """The lookups of a graph. Those that a method makes are counted, budgeted and traced for its question."""

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        """Look up the distinct relations at each entity, in both directions, after the relation filter (§8.4).

        Of two inverse relations only the outgoing one is given, where both are at the entity (`inverses`).
        """
        ...

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        """Look up the nodes that each hop leads to, at most `limit`.

        If there are more, these are the first ones in the byte order of their IRIs and texts. They are sorted by
        `node_order`.
        """
        ...

    async def labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]:
        """Look up the name of each entity by the preference of §8.5; None for an unnamed one.

        Where ids are names themselves, an entity without another name is named by its id.
        """
        ...

    async def mediators(self, ids: Sequence[EntityId]) -> Batch[EntityId, bool]:
        """Look up whether each entity is a mediator (a compound value node) by the rule of §8.5."""
        ...

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        """Look up at most `limit` entities for each name, in id order.

        An entity matches if it has exactly this name, in a language of the graph's vocabulary (English) or without a
        language, or if the name is its id.
        """
        ...

    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        """Look up the types of each entity (`type.object.type`)."""
        ...

    async def inverses(self) -> Inverses:
        """Return the pairs of inverse relations of which `relations` offers one; empty if it offers both."""
        ...


class KnowledgeGraph(GraphLookups, Protocol):
    """A graph backend, as `kg=…` configures it.

    A lookup that cannot be answered raises ServiceError. An error is never reported as an empty answer.
    """

    fingerprint: str
    """Identifies the facts, not the server: replicas of one database have the same fingerprint. Set on opening."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

    def for_question(self, question: Question) -> KnowledgeGraph:
        """Return the graph for this question: the backend itself, unless each question has its own graph."""
        ...

    async def relation_names(self) -> list[str]:
        """Return all relation names of the graph after the relation filter, sorted."""
        ...


@runtime_checkable
class HasVocabulary(Protocol):
    """A `KnowledgeGraph` whose ids and names follow a vocabulary (specification §8.9)."""

    terms: Terms
    """The RDF terms of ids and relations, with the names under which relations are shown. Set on opening."""

    async def current_ids(self, ids: Sequence[EntityId]) -> Batch[EntityId, EntityId]:
        """Look up under which id each entity is known today; its own, unless the graph redirects it."""
        ...


class AttributeLookups(Protocol):
    """More lookups of graphs whose nodes have attributes, which are not edges (specification §6.2)."""

    async def features(self, ids: Sequence[EntityId]) -> Batch[EntityId, dict[str, Any] | None]:
        """Look up the features of each node by name; None for an id that is not a node."""
        ...

    async def degrees(self, ids: Sequence[EntityId]) -> Batch[EntityId, dict[str, int] | None]:
        """Count the neighbours of each node per edge type, with repetitions; None for an id that is not a node."""
        ...


@runtime_checkable
class AttributedGraph(AttributeLookups, Protocol):
    """A `KnowledgeGraph` whose nodes have attributes (GRBench)."""

    fingerprint: str

    def text_nodes(self, *, labelled: bool = False) -> Iterator[tuple[EntityId, str]]:
        """Yield each node that has a text, in a fixed order. Blocks; may run in any thread.

        The text is the feature that names the node; `labelled`, all features that are searched, each with its name.
        """
        ...

    async def texts(self, ids: Sequence[EntityId], *, labelled: bool = False) -> Batch[EntityId, str | None]:
        """Look up the text of each node as `text_nodes` yields it."""
        ...


def batch(items: dict[K, V], *, queries: int = 0, endpoint: str | None = None) -> Batch[K, V]:
    """Return a mapping as a `Batch`."""
    result: Batch[K, V] = Batch(items)
    result.queries = queries
    result.endpoint = endpoint
    return result


def answer_each(look_up: Callable[[K], V], arguments: Iterable[K]) -> Batch[K, V]:
    """Look up each argument in a graph in this process. All of them count as one query."""
    answers = {argument: look_up(argument) for argument in arguments}
    return batch(answers, queries=1 if answers else 0)


def node_order(node: Node) -> tuple[bool, Any, str, str]:
    """Return the sort key of a node: entities by id, then literals by value, datatype and language."""
    if isinstance(node, str):
        return (False, node, "", "")
    return (True, node.value, node.datatype or "", node.lang or "")
