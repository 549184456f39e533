"""`kg=embedded`: a graph in this process, in memory or in an Oxigraph store on disk (specification §8.1).

The same facts give the same answers in the same order as from a graph server. They are read from the store's indexes,
without queries.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Self

import pyoxigraph as ox
from pydantic import ConfigDict, PositiveInt, SkipValidation
from pydantic.dataclasses import dataclass

from pipeline.datasets.interface import Dataset
from pipeline.datasets.inverses import INVERSE, Inverses, inverse_pairs
from pipeline.errors import UserError
from pipeline.kg.fingerprint import fingerprint, of_every_fact, rarest
from pipeline.kg.interface import Batch, Hop, Neighbours, answer_each
from pipeline.kg.inverses import without_inverses
from pipeline.kg.labels import ALIAS, MEDIATOR, NAME, TYPE, best_name, find_mediators, is_true
from pipeline.kg.node_order import NodeCandidate, keep_first
from pipeline.kg.relation_filter import RelationFilter
from pipeline.rdf_terms import Terms
from pipeline.types import RUNTIME_ONLY, Direction, EntityId, LiteralNode, Node, Question, Relation, Triple

_log = logging.getLogger(__name__)

_DIRECTIONS: tuple[Direction, Direction] = ("in", "out")


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class EmbeddedGraph:
    """A graph in this process. The fields are described in `conf/kg/embedded.yaml`."""

    dataset: Annotated[Any, SkipValidation] = None
    store: Path | None
    namespace: str
    opaque_ids: str
    keep_literals: bool
    keep_user: bool
    keep_notable_types: bool
    keep_inverses: bool
    cache_size: Annotated[PositiveInt, RUNTIME_ONLY]

    async def __aenter__(self) -> Self:
        """Open the store, or load the dataset's graph. Raises UserError if there is neither."""
        self._terms = Terms(self.namespace, self.opaque_ids)
        self._filter = RelationFilter(self.keep_user, self.keep_notable_types)
        await asyncio.to_thread(self._open)
        cached = lru_cache(self.cache_size)
        self._relations_of: Callable[[EntityId], list[Relation]] = cached(self._read_relations)
        self._neighbours_of: Callable[[Hop, int], Neighbours] = cached(self._read_neighbours)
        self._label_of: Callable[[EntityId], str | None] = cached(self._read_label)
        return self

    async def __aexit__(self, *exc: object) -> None:
        del self._store, self._relations_of, self._neighbours_of, self._label_of

    def for_question(self, question: Question) -> Self:
        return self

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        return answer_each(self._relations_of, ids)

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        return answer_each(lambda hop: self._neighbours_of(hop, limit), hops)

    async def labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]:
        return answer_each(self._label_of, ids)

    async def mediators(self, ids: Sequence[EntityId]) -> Batch[EntityId, bool]:
        return await find_mediators(self, ids, self._terms, self._mediator_types)

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        return answer_each(lambda name: self._read_named(name)[:limit], names)

    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        return answer_each(self._read_types, ids)

    async def vocabulary(self) -> list[str]:
        return sorted(relation for relation in self._counts if self._filter.keeps(relation))

    async def inverses(self) -> Inverses:
        return self._inverses

    def has_text(self, text: str) -> bool:
        """Return whether a text is in a fact, in English or without a language."""
        return any(
            True for node in (LiteralNode(text, lang="en"), LiteralNode(text)) for _ in self._match(None, None, node)
        )

    def _open(self) -> None:
        if self.store is not None:
            self._store = _open_store(self.store)
        elif self.dataset is not None:
            self._store = ox.Store()
            self._store.bulk_extend(self._quads(self.dataset))
        else:
            raise UserError("kg=embedded has no graph: choose a dataset with a graph, or set kg.store")
        # The store's query engine counts many times faster than a loop in Python.
        counted: Any = self._store.query("SELECT ?r (COUNT(*) AS ?n) WHERE { ?s ?r ?o } GROUP BY ?r")
        names = ((self._terms.from_iri(row["r"].value), int(row["n"].value)) for row in counted)
        self._counts = {relation: count for relation, count in names if relation is not None}
        self._mediator_types = frozenset(
            fact.head
            for fact in self._facts(MEDIATOR)
            if isinstance(fact.head, str) and is_true(fact.tail if isinstance(fact.tail, str) else fact.tail.value)
        )
        declared = [] if self.keep_inverses else self._facts(INVERSE)
        self._inverses = inverse_pairs((fact.head, fact.tail) for fact in declared)
        self.fingerprint: str = self._identify()

    def _quads(self, dataset: Dataset) -> Iterator[ox.Quad]:
        """Yield the dataset's facts; skip facts that no store can hold."""
        node = lru_cache(100_000)(self._named_node)
        for triple in dataset.triples():
            if defect := self._terms.defect(triple):
                _log.warning("skipped a fact of the graph of %s: %s", dataset.name, defect)
                continue
            head, relation, tail = triple
            assert isinstance(head, str)
            yield ox.Quad(node(head), node(relation), node(tail) if isinstance(tail, str) else _literal(tail))

    def _identify(self) -> str:
        facts = (fact for relation in rarest(self._counts) for fact in self._facts(relation))
        partial = fingerprint(self._counts, map(self._terms.n_triple, facts))
        if self.store is not None:
            return partial
        # The user's own graph may be edited between two runs, so the fingerprint includes every fact.
        total = sum(int.from_bytes(hashlib.blake2b(str(quad).encode(), digest_size=8).digest()) for quad in self._store)
        return of_every_fact(partial, total)

    def _facts(self, relation: str) -> Iterator[Triple]:
        for quad in self._match(None, relation, None):
            yield Triple(self._node(quad.subject), relation, self._node(quad.object))

    def _read_relations(self, id: EntityId) -> list[Relation]:
        kept = (
            Relation(relation, direction)
            for direction in _DIRECTIONS
            for relation in self._relations_in(id, direction)
            if self._filter.keeps(relation)
        )
        return without_inverses(kept, self._inverses)

    def _relations_in(self, id: EntityId, direction: Direction) -> set[str]:
        """Return the relations at an entity. At a hub, test each relation instead of reading all facts (§8.6)."""
        head, tail = (id, None) if direction == "out" else (None, id)
        predicates = set()
        for number, quad in enumerate(self._match(head, None, tail)):
            if number > 4 * len(self._counts):
                return {relation for relation in self._counts if any(self._match(head, relation, tail))}
            predicates.add(quad.predicate)
        names = (self._terms.from_iri(predicate.value) for predicate in predicates)
        return {name for name in names if name is not None}

    def _read_neighbours(self, hop: Hop, limit: int) -> Neighbours:
        id, (relation, direction) = hop
        if direction == "out":
            found = (_candidate(quad.object) for quad in self._match(id, relation, None))
        else:
            found = (_candidate(quad.subject) for quad in self._match(None, relation, id))
        kept = (candidate for candidate in found if self.keep_literals or not candidate.is_literal)
        return keep_first(kept, limit, self._terms)

    def _read_label(self, id: EntityId) -> str | None:
        texts = (
            (relation, self._node(quad.object))
            for relation in (NAME, ALIAS)
            for quad in self._match(id, relation, None)
        )
        name = best_name((relation, text) for relation, text in texts if isinstance(text, LiteralNode))
        return self._terms.own_name(id) if name is None else name

    def _read_named(self, name: str) -> list[EntityId]:
        texts = (LiteralNode(name, lang="en"), LiteralNode(name))
        found = {self._node(quad.subject) for text in texts for quad in self._match(None, NAME, text)}
        if self._terms.own_name(name) is not None and self._relations_of(name):
            found.add(name)
        return sorted(id for id in found if isinstance(id, str))

    def _read_types(self, id: EntityId) -> list[str]:
        types = (self._node(quad.object) for quad in self._match(id, TYPE, None))
        return sorted({type for type in types if isinstance(type, str)})

    def _match(self, head: EntityId | None, relation: str | None, tail: Node | None) -> Iterable[ox.Quad]:
        """Return the facts that match a pattern; none if a term of the pattern is not storable."""
        if any(term is not None and not self._terms.storable(term) for term in (head, relation, tail)):
            return ()
        return self._store.quads_for_pattern(
            None if head is None else self._named_node(head),
            None if relation is None else self._named_node(relation),
            None if tail is None else self._named_node(tail) if isinstance(tail, str) else _literal(tail),
        )

    def _named_node(self, name: str) -> ox.NamedNode:
        return ox.NamedNode(self._terms.to_iri(name))

    def _node(self, term: Any) -> Node:
        return _candidate(term).node(self._terms)


def _open_store(path: Path) -> ox.Store:
    if not path.is_dir():
        raise UserError(
            f"kg.store={path} is not a folder; create it with `kgqa graph load target=oxigraph output={path}`"
        )
    try:
        # Read-only, so that all workers of one machine can share it.
        return ox.Store.read_only(str(path))
    except OSError as error:
        raise UserError(f"kg.store={path} is not an Oxigraph store: {error}") from None


def _candidate(term: Any) -> NodeCandidate:
    if isinstance(term, ox.Literal):
        return NodeCandidate.from_literal(term.value, term.datatype.value, term.language)
    return NodeCandidate(False, term.value)


def _literal(node: LiteralNode) -> ox.Literal:
    if node.lang:
        return ox.Literal(node.value, language=node.lang)
    return ox.Literal(node.value, datatype=ox.NamedNode(node.datatype) if node.datatype else None)
