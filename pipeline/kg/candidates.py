"""Which nodes of a hop are kept when there are more than asked for: the same ones in every backend."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple, Self

from pipeline.kg.port import Neighbours, node_order
from pipeline.kg.terms import Terms, literal_node
from pipeline.types import LiteralNode, Node


class Candidate(NamedTuple):
    """A node that a hop leads to. Candidates sort as `ORDER BY isLITERAL(?t) STR(?t) LANG(?t)` does, by bytes."""

    is_literal: bool
    text: str
    """IRI or lexical form."""
    lang: str = ""
    datatype: str = ""

    @classmethod
    def from_literal(cls, value: str, datatype: str | None, lang: str | None) -> Self:
        """A literal as a store gives it."""
        literal = literal_node(value, datatype, lang)
        return cls(True, literal.value, literal.lang or "", literal.datatype or "")

    def node(self, terms: Terms) -> Node:
        """The node itself."""
        if self.is_literal:
            return LiteralNode(self.text, self.datatype or None, self.lang or None)
        return terms.node(self.text)


def keep_first(candidates: Iterable[Candidate], limit: int, terms: Terms) -> Neighbours:
    """The first `limit` candidates, as nodes in the order of the port."""
    kept = heapq.nsmallest(limit + 1, set(candidates))
    nodes = {candidate.node(terms) for candidate in kept[:limit]}
    return Neighbours(tuple(sorted(nodes, key=node_order)), truncated=len(kept) > limit)
