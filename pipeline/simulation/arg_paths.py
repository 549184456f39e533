"""Compares a walk of ArG with the gold paths: which relations and tails lead on, and whether the walk is complete."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.methods.arg.entities import EntitySegment
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.rendering import node_name
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.gold_paths import next_gold_relations
from pipeline.types import Relation


def next_relations(walk: GroundedPath, gold_context: GoldContext) -> list[Relation]:
    """Return the next relation of each gold path that begins with this walk, the best path's first.

    A walk that has come back to a node has no next relation: no answer of MetaQA is reached only that way.
    """
    return [] if walk.end in walk.nodes[:-1] else next_gold_relations(walk, gold_context)


def best_next(walks: Iterable[GroundedPath], gold_context: GoldContext) -> list[str]:
    """Return the name of the best next relation of each walk that a gold path begins with."""
    following = (next_relations(walk, gold_context) for walk in walks)
    return list(dict.fromkeys(relations[0].name for relations in following if relations))


def all_next(walks: Iterable[GroundedPath], gold_context: GoldContext) -> set[str]:
    """Return the names of all next relations of the walks."""
    return {relation.name for walk in walks for relation in next_relations(walk, gold_context)}


def has_arrived(walk: GroundedPath, gold_context: GoldContext) -> bool:
    """Return whether the relations walked are a whole gold path."""
    return tuple(step.relation for step in walk.steps) in gold_context.paths.get(walk.start, ())


def tails_leading_on(segment: EntitySegment, gold_context: GoldContext) -> list[str]:
    """Return the names of the shown tails from which a gold path goes on."""
    return [
        name for name, tails in segment.shown_tails.items() if any(next_relations(tail, gold_context) for tail in tails)
    ]


def sought_tails(segment: EntitySegment, gold_context: GoldContext) -> list[str]:
    """Return the names of the shown tails that the answer needs."""
    return [
        name
        for name, tails in segment.shown_tails.items()
        if any(gold_context.is_sought(tail.end, node_name(tail.end, segment.names)) for tail in tails)
    ]
