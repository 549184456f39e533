"""An in-memory index of a small graph, which `kg=subgraph` builds from the facts of one question."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pipeline.datasets.inverses import inverse_pairs
from pipeline.kg.interface import Hop, Neighbours, node_order
from pipeline.kg.inverses import without_inverses
from pipeline.kg.labels import LabelCandidate, best_name, is_true
from pipeline.kg.node_order import NodeCandidate, keep_first
from pipeline.kg.relation_filter import RelationFilter
from pipeline.rdf_terms import literal_node
from pipeline.types import Direction, EntityId, LiteralNode, Node, Relation, Triple


class TripleIndex:
    """A directed multigraph: per node and direction, the sorted nodes that each relation leads to.

    The lookups are those of `KnowledgeGraph`, for one argument.
    """

    def __init__(
        self,
        triples: Iterable[Triple],
        *,
        relation_filter: RelationFilter,
        keep_literals: bool = True,
        keep_inverses: bool = False,
    ) -> None:
        """Index the facts. Duplicates count once; facts with a literal as head are skipped."""
        self.vocabulary = relation_filter.vocabulary
        self.terms = self.vocabulary.terms
        self._filter = relation_filter
        self._keep_literals = keep_literals
        edges: defaultdict[tuple[Node, Direction], defaultdict[str, set[Node]]]
        edges = defaultdict(lambda: defaultdict(set))
        for head, relation, tail in triples:
            if isinstance(head, str):
                end = tail if isinstance(tail, str) else literal_node(tail.value, tail.datatype, tail.lang)
                edges[head, "out"][relation].add(end)
                edges[end, "in"][relation].add(head)
        self._edges: dict[tuple[Node, Direction], dict[str, tuple[Node, ...]]] = {
            end: {relation: tuple(sorted(nodes, key=node_order)) for relation, nodes in relations.items()}
            for end, relations in edges.items()
        }
        declared = (
            (node, inverse)
            for (node, direction), relations in self._edges.items()
            if direction == "out" and not keep_inverses
            for inverse in relations.get(self.vocabulary.inverses or "", ())
        )
        self.inverses = inverse_pairs(declared)
        """The pairs of inverse relations of which `relations` offers one."""

    def relations(self, id: EntityId) -> list[Relation]:
        directions: tuple[Direction, ...] = ("in", "out")
        kept = (
            Relation(name, direction)
            for direction in directions
            for name in self._edges.get((id, direction), ())
            if self._filter.keeps(name)
        )
        return without_inverses(kept, self.inverses)

    def neighbours(self, hop: Hop, limit: int) -> Neighbours:
        id, (name, direction) = hop
        nodes = self._nodes(id, direction, name)
        if not self._keep_literals:
            nodes = tuple(node for node in nodes if isinstance(node, str))
        if len(nodes) <= limit:
            return Neighbours(nodes)
        return keep_first(map(self._candidate, nodes), limit, self.terms)

    def label(self, id: EntityId) -> str | None:
        texts: list[LabelCandidate] = [
            (is_alias, node)
            for is_alias, predicates in ((False, self.vocabulary.names), (True, self.vocabulary.aliases))
            for predicate in predicates
            for node in self._nodes(id, "out", predicate)
            if isinstance(node, LiteralNode)
        ]
        name = best_name(texts, self.vocabulary.languages)
        return self.terms.own_name(id) if name is None else name

    def find_by_name(self, name: str, limit: int) -> list[EntityId]:
        found = {
            id
            for predicate in self.vocabulary.names
            for lang in (*self.vocabulary.languages, None)
            for id in self._nodes(LiteralNode(name, lang=lang), "in", predicate)
            if isinstance(id, str)
        }
        if self.terms.own_name(name) is not None and self.relations(name):
            found.add(name)
        return sorted(found)[:limit]

    def types(self, id: EntityId) -> list[str]:
        return [node for node in self._nodes(id, "out", self.vocabulary.types or "") if isinstance(node, str)]

    def mediator_types(self) -> frozenset[str]:
        """Return the types whose instances are mediators."""
        marked = self.vocabulary.mediator_flag or ""
        return frozenset(
            node
            for (node, direction), relations in self._edges.items()
            if direction == "out" and isinstance(node, str)
            if any(is_true(flag if isinstance(flag, str) else flag.value) for flag in relations.get(marked, ()))
        )

    def relation_names(self) -> list[str]:
        return sorted({name for relations in self._edges.values() for name in relations if self._filter.keeps(name)})

    def _nodes(self, node: Node, direction: Direction, relation: str) -> tuple[Node, ...]:
        return self._edges.get((node, direction), {}).get(relation, ())

    def _candidate(self, node: Node) -> NodeCandidate:
        if isinstance(node, str):
            return NodeCandidate(False, self.terms.to_iri(node))
        return NodeCandidate.from_literal(node.value, node.datatype, node.lang)
