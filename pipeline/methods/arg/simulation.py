"""What a perfect generator knows of a walk: where the gold paths go on from it, and whether it has arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.methods.instance import Instance
from pipeline.types import Relation

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth


def next_relations(instance: Instance, truth: Truth) -> list[Relation]:
    """How the gold paths that begin with this walk go on, the best path's relation first.

    They do not from a node that the walk was at before: of MetaQA's answers none is only reached through it.
    """
    if instance.end in instance.nodes[:-1]:
        return []
    walked = tuple(step.relation for step in instance.steps)
    paths = (path for path in truth.paths.get(instance.start, ()) if len(path) > len(walked))
    return list(dict.fromkeys(path[len(walked)] for path in paths if path[: len(walked)] == walked))


def best_next(instances: tuple[Instance, ...], truth: Truth) -> list[str]:
    """The name of the relation to follow from each instance that a gold path goes on from."""
    following = (next_relations(instance, truth) for instance in instances)
    return list(dict.fromkeys(relations[0].name for relations in following if relations))


def all_next(instances: tuple[Instance, ...], truth: Truth) -> set[str]:
    """The names of all relations by which gold paths go on."""
    return {relation.name for instance in instances for relation in next_relations(instance, truth)}


def has_arrived(instance: Instance, truth: Truth) -> bool:
    """Whether the relations walked are a whole gold path."""
    return tuple(step.relation for step in instance.steps) in truth.paths.get(instance.start, ())
