"""`kg=embedded`: a graph in this process, in memory or in an Oxigraph store on disk (specification §8.1).

The same facts give the same answers in the same order as from a graph server. They are read from the store's indexes,
without queries.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Self

import pyoxigraph as ox
from pydantic import ConfigDict, PositiveInt, SkipValidation
from pydantic.dataclasses import dataclass

from pipeline.datasets.interface import Dataset
from pipeline.datasets.inverses import Inverses, inverse_pairs
from pipeline.errors import UserError
from pipeline.grouping import grouped
from pipeline.kg.empty_graph import empty_graph
from pipeline.kg.fingerprint import fingerprint, of_every_fact, rarest, vocabulary_marks
from pipeline.kg.interface import Batch, Hop, Neighbours, answer_each
from pipeline.kg.inverses import without_inverses
from pipeline.kg.labels import LabelCandidate, best_name, find_mediators, is_in, is_true
from pipeline.kg.node_order import NodeCandidate, keep_first
from pipeline.kg.redirects import current_ids, with_current_nodes
from pipeline.kg.relation_filter import RelationFilter
from pipeline.kg.relation_labels import labelled_nodes, offered_relations, shown_names
from pipeline.kg.vocabulary import GraphVocabulary
from pipeline.rdf_terms import VALUE_TYPES, Terms
from pipeline.text import counted, kgqa
from pipeline.types import RUNTIME_ONLY, Direction, EntityId, LiteralNode, Node, Question, Relation, Triple

_log = logging.getLogger(__name__)
_NAMED_BY_IRIS = (
    "the nodes of the graph of %s are IRIs (%s), which this vocabulary takes as names: kg/vocabulary=rdfs or wikidata "
    "reads IRIs, and kg.vocabulary.percent_encoded=false those of Freebase itself"
)

_DIRECTIONS: tuple[Direction, Direction] = ("in", "out")


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class EmbeddedGraph:
    """A graph in this process. The fields are described in `conf/kg/embedded.yaml`."""

    dataset: Annotated[Any, SkipValidation] = None
    store: Path | None
    vocabulary: GraphVocabulary
    keep_literals: bool
    keep_user: bool
    keep_notable_types: bool
    keep_inverses: bool
    cache_size: Annotated[PositiveInt, RUNTIME_ONLY]

    async def __aenter__(self) -> Self:
        """Open the store, or load the dataset's graph. Raises UserError if there is neither."""
        self.terms: Terms = self.vocabulary.terms
        self._filter = RelationFilter(self.vocabulary, self.keep_user, self.keep_notable_types)
        self.skipped: str = ""
        """How many facts of the dataset no store can hold, and why not the first; empty if there are none."""
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
        found = answer_each(lambda hop: self._neighbours_of(hop, limit), hops)
        return found if self.vocabulary.redirects is None else await with_current_nodes(found, self._redirects)

    async def labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]:
        return answer_each(self._label_of, ids)

    async def mediators(self, ids: Sequence[EntityId]) -> Batch[EntityId, bool]:
        return await find_mediators(self, ids, self.terms, self._mediator_types, self.vocabulary)

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        return answer_each(lambda name: self._read_named(name)[:limit], names)

    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        predicate = self.vocabulary.types
        return answer_each(lambda node: sorted(set(self._entities(node, predicate))), ids)

    async def relation_names(self) -> list[str]:
        return offered_relations(self._counts, self._filter.keeps, self.terms)

    async def inverses(self) -> Inverses:
        return self._inverses

    async def current_ids(self, ids: Sequence[EntityId]) -> Batch[EntityId, EntityId]:
        return await current_ids(ids, self._redirects if self.vocabulary.redirects else None)

    def has_text(self, text: str) -> bool:
        """Return whether a text is in a fact: as a value, or in a language of the vocabulary, or without one."""
        nodes = (*self._in_languages(text), *(LiteralNode(text, datatype) for datatype in VALUE_TYPES))
        return any(True for node in nodes for _ in self._match(None, None, node))

    def has_relation(self, name: str) -> bool:
        """Return whether a relation is in a fact, even one that the graph does not offer."""
        return any(True for _ in self._match(None, name, None))

    def hidden_relations(self) -> tuple[list[str], list[str]]:
        """Return the relations of a user's graph that are not offered, sorted.

        First those that are hidden by the start of their names, then those hidden by another part. None are returned of
        a graph that names its nodes as Freebase does: there, they are bookkeeping.
        """
        naming = map(self.terms.predicate_name, (*self.vocabulary.names, *self.vocabulary.aliases))
        if not self.vocabulary.percent_encoded or not self._counts.keys().isdisjoint(naming):
            return [], []
        hidden = sorted(each for each in self._counts if not self._filter.keeps(each))
        by_start = grouped(hidden, self._filter.is_hidden)
        return by_start.get(True, []), by_start.get(False, [])

    def any_relation(self, id: EntityId) -> str | None:
        """Return the name of a relation of a node, even one that the graph does not offer; None without a fact."""
        return min(self._relations_in(id, "in") | self._relations_in(id, "out"), default=None)

    def _open(self) -> None:
        if self.store is not None:
            self._store = _open_store(self.store)
        elif self.dataset is not None:
            self._store = ox.Store()
            self._store.bulk_extend(self._quads(self.dataset))
        else:
            raise UserError("kg=embedded has no graph: choose a dataset with a graph, or set kg.store")
        by_iri = self._count_facts()
        if not by_iri:
            raise empty_graph(f"the graph of {self.dataset.name}" if self.store is None else f"kg.store={self.store}")
        names = ((self.terms.plain_relation(iri), count) for iri, count in by_iri.items())
        self._counts = {relation: count for relation, count in names if relation is not None}
        self._mediator_types = frozenset(
            head
            for head, tail in self._pairs(self.vocabulary.mediator_flag)
            if isinstance(head, str) and is_true(tail if isinstance(tail, str) else tail.value)
        )
        meta = set(map(self.terms.predicate_iri, self.vocabulary.meta_predicates))
        self.fingerprint: str = self._identify({iri: count for iri, count in by_iri.items() if iri in meta})
        if self.vocabulary.relation_labels:
            nodes = labelled_nodes(filter(self._filter.keeps, self._counts), self.terms)
            labels = {node: self._name(node) for node in nodes.values()}
            self.terms = replace(self.terms, relation_labels=shown_names(nodes, labels, self.terms))
        shown = self.terms.relation_labels
        pairs = inverse_pairs([] if self.keep_inverses else self._pairs(self.vocabulary.inverses))
        self._inverses: Inverses = {shown.get(one, one): shown.get(other, other) for one, other in pairs.items()}

    def _count_facts(self) -> dict[str, int]:
        """Return the number of facts per relation. The query engine counts many times faster than a loop in Python."""
        counted: Any = self._store.query("SELECT ?r (COUNT(*) AS ?n) WHERE { ?s ?r ?o } GROUP BY ?r")
        return {row["r"].value: int(row["n"].value) for row in counted}

    def _quads(self, dataset: Dataset) -> Iterator[ox.Quad]:
        """Yield the dataset's facts; skip facts that no store can hold."""
        node = lru_cache(100_000)(self._storable_node)  # most nodes are in several facts
        predicate = lru_cache(100_000)(self._storable_predicate)
        skipped, reason = 0, ""
        for number, triple in enumerate(dataset.triples()):
            if number == 0 and self.vocabulary.percent_encoded and str(triple.head).startswith(("http://", "https://")):
                _log.warning(_NAMED_BY_IRIS, dataset.name, triple.head)
            head, edge, tail = node(triple.head), predicate(triple.relation), node(triple.tail)
            if edge is None or tail is None or not isinstance(head, ox.NamedNode):
                skipped += 1
                reason = reason or self.terms.defect(triple) or ""
            else:
                yield ox.Quad(head, edge, tail)
        if skipped:
            self.skipped = f"{counted(skipped, 'fact')} of the graph of {dataset.name} skipped; the first: {reason}"
            _log.warning("%s", self.skipped)

    def _storable_node(self, node: Node) -> ox.NamedNode | ox.Literal | None:
        if self.terms.node_defect(node):
            return None
        return self._named_node(node) if isinstance(node, str) else _literal(node)

    def _storable_predicate(self, relation: str) -> ox.NamedNode | None:
        return None if self.terms.relation_defect(relation) else self._predicate(relation)

    def _identify(self, meta: Mapping[str, int]) -> str:
        """Return the fingerprint, given the number of facts per predicate of the vocabulary."""
        facts = (fact for relation in rarest(self._counts) for fact in self._facts(relation))
        marks = vocabulary_marks(self.vocabulary, meta)
        partial = fingerprint(self._counts, chain(map(self.terms.n_triple, facts), marks))
        if self.store is not None:
            return partial
        # The user's own graph may be edited between two runs, so the fingerprint includes every fact.
        total = sum(int.from_bytes(hashlib.blake2b(str(quad).encode(), digest_size=8).digest()) for quad in self._store)
        return of_every_fact(partial, total)

    def _facts(self, relation: str) -> Iterator[Triple]:
        for quad in self._match(None, relation, None):
            yield Triple(self._node(quad.subject), relation, self._node(quad.object))

    def _pairs(self, predicate: str | None) -> Iterator[tuple[Node, Node]]:
        """Yield both ends of the facts of a predicate of the vocabulary; None has no facts."""
        for quad in self._with_predicate(None, predicate, None):
            yield self._node(quad.subject), self._node(quad.object)

    def _read_relations(self, id: EntityId) -> list[Relation]:
        shown = self.terms.relation_labels
        kept = (
            Relation(shown.get(relation, relation), direction)
            for direction in _DIRECTIONS
            for relation in self._relations_in(id, direction)
            if self._filter.keeps(relation)
        )
        return without_inverses(kept, self._inverses)

    def _relations_in(self, id: EntityId, direction: Direction) -> set[str]:
        """Return the plain relations at an entity. At a hub, test each relation instead of reading all facts (§8.6)."""
        head, tail = (id, None) if direction == "out" else (None, id)
        predicates = set()
        for number, quad in enumerate(self._match(head, None, tail)):
            if number > 4 * len(self._counts):
                return {relation for relation in self._counts if any(self._match(head, relation, tail))}
            predicates.add(quad.predicate)
        names = (self.terms.plain_relation(predicate.value) for predicate in predicates)
        return {name for name in names if name is not None}

    def _read_neighbours(self, hop: Hop, limit: int) -> Neighbours:
        id, (relation, direction) = hop
        if direction == "out":
            found = (_candidate(quad.object) for quad in self._match(id, relation, None))
        else:
            found = (_candidate(quad.subject) for quad in self._match(None, relation, id))
        kept = (candidate for candidate in found if self.keep_literals or not candidate.is_literal)
        return keep_first(kept, limit, self.terms)

    def _read_label(self, id: EntityId) -> str | None:
        name = self._name(id)
        return self.terms.own_name(id) if name is None else name

    async def named_in_languages(self, ids: Sequence[EntityId]) -> set[EntityId]:
        """Return the entities that have a name or an alias in the languages of the vocabulary."""
        languages = self.vocabulary.languages
        return {id for id in ids if any(is_in(each, languages) for each in self._texts(id))}

    def _name(self, id: EntityId) -> str | None:
        """Return the name of an entity, however its id is written."""
        return best_name(self._texts(id), self.vocabulary.languages)

    def _texts(self, id: EntityId) -> list[LabelCandidate]:
        return [
            (is_alias, text)
            for is_alias, predicates in ((False, self.vocabulary.names), (True, self.vocabulary.aliases))
            for predicate in predicates
            for quad in self._with_predicate(id, predicate, None)
            if isinstance(text := self._node(quad.object), LiteralNode)
        ]

    def _read_named(self, name: str) -> list[EntityId]:
        found = {
            self._node(quad.subject)
            for predicate in self.vocabulary.names
            for text in self._in_languages(name)
            for quad in self._with_predicate(None, predicate, text)
        }
        if self.terms.own_name(name) is not None and self._relations_of(name):
            found.add(name)
        return sorted(id for id in found if isinstance(id, str))

    async def _redirects(self, ids: Sequence[EntityId]) -> Batch[EntityId, EntityId | None]:
        predicate = self.vocabulary.redirects
        return answer_each(lambda former: min(self._entities(former, predicate), default=None), ids)

    def _entities(self, id: EntityId, predicate: str | None) -> Iterator[EntityId]:
        """Return the entities to which a predicate of the vocabulary leads; None leads to none."""
        nodes = (self._node(quad.object) for quad in self._with_predicate(id, predicate, None))
        return (node for node in nodes if isinstance(node, str))

    def _in_languages(self, text: str) -> list[LiteralNode]:
        return [LiteralNode(text, lang=lang) for lang in (*self.vocabulary.languages, None)]

    def _match(self, head: EntityId | None, relation: str | None, tail: Node | None) -> Iterable[ox.Quad]:
        """Return the facts that match a pattern; none if a term of the pattern is not storable."""
        if relation is None:
            return self._matching(head, None, tail)
        return self._matching(head, self._predicate(relation), tail) if self.terms.storable_relation(relation) else ()

    def _with_predicate(self, head: EntityId | None, predicate: str | None, tail: Node | None) -> Iterable[ox.Quad]:
        """Return the facts of a predicate of the vocabulary that match a pattern; none for None."""
        if predicate is None:
            return ()
        return self._matching(head, ox.NamedNode(self.terms.predicate_iri(predicate)), tail)

    def _matching(self, head: EntityId | None, edge: ox.NamedNode | None, tail: Node | None) -> Iterable[ox.Quad]:
        if any(term is not None and not self.terms.storable(term) for term in (head, tail)):
            return ()
        return self._store.quads_for_pattern(
            None if head is None else self._named_node(head),
            edge,
            None if tail is None else self._named_node(tail) if isinstance(tail, str) else _literal(tail),
        )

    def _predicate(self, relation: str) -> ox.NamedNode:
        return ox.NamedNode(self.terms.relation_iri(relation))

    def _named_node(self, name: str) -> ox.NamedNode:
        return ox.NamedNode(self.terms.to_iri(name))

    def _node(self, term: Any) -> Node:
        return _candidate(term).node(self.terms)


def _open_store(path: Path) -> ox.Store:
    if not path.is_dir():
        command = kgqa("graph", "load", "target=oxigraph", f"output={path}")
        raise UserError(f"kg.store={path} is not a folder; create it with `{command}` and the keys of the dataset")
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
