"""Chooses the nodes of a hop that are kept if there are more than the limit, equally in every backend."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple, Self

from pipeline.kg.interface import Neighbours, node_order
from pipeline.rdf_terms import Terms, literal_node
from pipeline.types import LiteralNode, Node


class NodeCandidate(NamedTuple):
    """A node that a hop leads to. Candidates sort by bytes, as `ORDER BY isLITERAL(?t) STR(?t) LANG(?t)` does."""

    is_literal: bool
    text: str
    """IRI or lexical form."""
    lang: str = ""
    datatype: str = ""

    @classmethod
    def from_literal(cls, value: str, datatype: str | None, lang: str | None) -> Self:
        """Return the candidate for a literal as a store returns it."""
        literal = literal_node(value, datatype, lang)
        return cls(True, literal.value, literal.lang or "", literal.datatype or "")

    def node(self, terms: Terms) -> Node:
        """Return the node."""
        if self.is_literal:
            return LiteralNode(self.text, self.datatype or None, self.lang or None)
        return terms.node(self.text)


def keep_first(candidates: Iterable[NodeCandidate], limit: int, terms: Terms) -> Neighbours:
    """Return the first `limit` candidates, as nodes sorted by `node_order`."""
    kept = heapq.nsmallest(limit + 1, set(candidates))
    nodes = {candidate.node(terms) for candidate in kept[:limit]}
    return Neighbours(tuple(sorted(nodes, key=node_order)), truncated=len(kept) > limit)
