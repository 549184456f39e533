"""The search tree: nodes to extend, and leaves with answers (specification §4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pipeline.methods.arg.answers import ParsedAnswers
from pipeline.methods.arg.scores import Terms
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.rendering import Names, node_name
from pipeline.types import EntityId, Relation

RelationRank: TypeAlias = Literal["relevance", "parent", "parent_seq"]


@dataclass(frozen=True, slots=True)
class Node:
    """A transcript so far, with the walks that led to its current entities."""

    transcript: str
    """Up to and including the next retrieval token."""
    walks: tuple[GroundedPath, ...]
    """The walks to its current entities."""
    hop_scores: tuple[float, ...] = ()
    """k1 · S_rel · S_rat of each hop."""
    sequence_scores: tuple[float, ...] = ()
    """S_seq of the segment of tails of each hop."""
    score: float = 0.0
    """The path score, aggregated from the scores of the hops."""
    tried: frozenset[Relation] = frozenset()
    """The relations followed from the current entities in the last hop without reaching a relevant tail."""
    relations: Mapping[str, float] = field(default_factory=dict)
    """At the relation level: the relevant relations of the group, each with its relevance score."""
    mean_logprob: float = 0.0
    """At the relation level: the mean log-probability of the segment of the group."""

    @property
    def walk_to(self) -> dict[EntityId, GroundedPath]:
        """The current entities, each with the first walk to it. Literals are left out: no relation leaves them."""
        walk_to: dict[EntityId, GroundedPath] = {}
        for walk in self.walks:
            if isinstance(walk.end, str):
                walk_to.setdefault(walk.end, walk)
        return walk_to


@dataclass(frozen=True, slots=True)
class Expansion:
    """One relation to follow from one entity of a relation-level node."""

    node: Node
    source: GroundedPath
    relation: str
    hops: tuple[tuple[EntityId, Relation], ...]
    """The entity with the relation, in each direction to follow."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A finished transcript."""

    answers: ParsedAnswers
    walks: tuple[GroundedPath, ...]
    """The evidence for the answers."""
    score: float


def relation_beam(nodes: Iterable[Node], width: int, rank: RelationRank, terms: Terms) -> list[Node]:
    """Return the best relation-level nodes; ties keep the order of retrieval. Width 0 keeps all.

    Args:
        nodes: Nodes with a relevant relation, in the order of the beam before and of retrieval.
        width: How many to keep.
        rank: By the path score plus the largest relevance of the group, by the path score and then that relevance, or
            by the path score plus the mean log-probability of the segment.
        terms: Without relevance or sequence, no rank uses it.
    """
    ranked = sorted(nodes, key=lambda node: _rank(node, rank, terms), reverse=True)
    return ranked[:width] if width else ranked


def _rank(node: Node, rank: RelationRank, terms: Terms) -> tuple[float, float]:
    relevance = max(node.relations.values()) if terms.relevance else 0.0
    if rank == "relevance":
        return node.score + relevance, 0.0
    if rank == "parent":
        return node.score, relevance
    return node.score + (node.mean_logprob if terms.sequence else 0.0), 0.0


def entity_beam(nodes: Iterable[Node], width: int) -> list[Node]:
    """Return the best entity-level nodes by path score; ties keep their order. Width 0 keeps all."""
    ranked = sorted(nodes, key=lambda node: -node.score)
    return ranked[:width] if width else ranked


def best_leaves(leaves: Iterable[Leaf]) -> list[Leaf]:
    """Return the leaves that have an answer, best first."""
    return sorted((leaf for leaf in leaves if leaf.answers.texts), key=lambda leaf: -leaf.score)


def excluded_relations(node: Node, walk: GroundedPath, names: Names) -> frozenset[Relation]:
    """Return the relation of the last hop and, at an unnamed node, its inverse; and what was tried before."""
    if not walk.steps:
        return node.tried
    last = walk.steps[-1].relation
    return node.tried | ({last} if node_name(walk.end, names) is not None else {last, last.reversed})
