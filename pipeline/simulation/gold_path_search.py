"""Follows gold relation paths node by node, for the oracle and for training data."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from pipeline.kg.interface import GraphLookups, node_order
from pipeline.kg.paths import MAX_FRONTIER, MAX_NEIGHBOURS, GoldNodes
from pipeline.types import EntityId, GoldAnswer, Node, Relation, RelationPath

_MAX_SAMPLE = 50
"""Nodes of a layer that decide whether it is a layer of mediators."""


async def waypoints(kg: GraphLookups, topic: EntityId, path: Sequence[Relation], goals: Container[Node]) -> set[Node]:
    """Return the nodes between the start and the end of a path from which the path reaches a goal.

    Costs the lookups of `instantiate`.
    """
    _, *inner = await _steps_to_goals(kg, topic, path, goals)
    return set().union(*inner)


async def draw_walk(
    kg: GraphLookups, topic: EntityId, path: Sequence[Relation], goals: Container[Node], random: Random
) -> tuple[Node, ...] | None:
    """Draw the nodes of a walk along a path from `topic` to a goal; None if there is no such walk.

    No node is visited twice, unless no goal can be reached otherwise. Costs the lookups of `instantiate`.
    """
    steps = await _steps_to_goals(kg, topic, path, goals)
    return _draw((topic,), steps, random, revisits=False) or _draw((topic,), steps, random, revisits=True)


def _draw(
    walk: tuple[Node, ...], steps: Sequence[Mapping[Node, Sequence[Node]]], random: Random, *, revisits: bool
) -> tuple[Node, ...] | None:
    if not steps:
        return walk[1:]
    nodes = [node for node in steps[0].get(walk[-1], ()) if revisits or node not in walk]
    tries = (_draw((*walk, node), steps[1:], random, revisits=revisits) for node in random.sample(nodes, len(nodes)))
    return next(filter(None, tries), None)


async def _steps_to_goals(
    kg: GraphLookups, topic: EntityId, path: Sequence[Relation], goals: Container[Node]
) -> list[dict[Node, list[Node]]]:
    """Return, per hop of a path, the nodes from which the path reaches a goal, each with its next nodes."""
    layers: list[dict[Node, tuple[Node, ...]]] = []
    nodes: Collection[Node] = [topic]
    for relation in path:
        sources = [node for node in nodes if isinstance(node, str)][:MAX_FRONTIER]
        reached = await kg.neighbours([(source, relation) for source in sources], MAX_NEIGHBOURS)
        layers.append({source: hop.nodes for (source, _), hop in reached.items()})
        nodes = sorted({node for hop in reached.values() for node in hop.nodes}, key=node_order)
    steps: list[dict[Node, list[Node]]] = []
    reaching: Container[Node] = goals
    for layer in reversed(layers):
        kept = {source: [end for end in ends if end in reaching] for source, ends in layer.items()}
        reaching = {source: ends for source, ends in kept.items() if ends}
        steps.append(reaching)
    return steps[::-1]


@dataclass(frozen=True, slots=True)
class Leg:
    """A part of a relation path that a person would call one step: between named nodes, through any mediators."""

    starts: frozenset[Node]
    """The nodes where it begins."""
    relations: RelationPath
    """One relation, or several through mediators."""
    nodes: frozenset[Node]
    """The nodes where it ends."""
    leading: frozenset[Node]
    """The nodes among them from which the path reaches a gold answer."""


async def legs(
    kg: GraphLookups, topic: EntityId, path: RelationPath, answers: Sequence[GoldAnswer], *, foresight: bool = True
) -> tuple[Leg, ...]:
    """Cut a path from `topic` into legs at its named nodes.

    Without foresight, nodes from which the path does not go on count as nodes that lead to a gold answer, except at the
    end of the path. No node is visited twice, unless no gold answer can be reached otherwise. Costs one batched lookup
    per layer (two in the latter case), one for names, and one for gold answers without an id.
    """
    gold = await GoldNodes.resolve(kg, answers)
    layers = await _layers(kg, topic, path, revisits=False)
    leading = [chain for chain in layers[-1] if chain[-1] in gold]
    if not leading:
        with_revisits = await _layers(kg, topic, path, revisits=True)
        leading = [chain for chain in with_revisits[-1] if chain[-1] in gold]
        layers = with_revisits if leading else layers
    chains = layers[-1]
    if not chains:
        return ()
    if foresight:
        reached, good = [chains] * len(layers), [leading] * len(layers)
    else:
        reached, good = layers, [*layers[:-1], leading]
    return tuple(
        Leg(
            starts=frozenset(chain[start] for chain in reached[start]),
            relations=path[start:end],
            nodes=frozenset(chain[end] for chain in reached[end]),
            leading=frozenset(chain[end] for chain in good[end]),
        )
        for start, end in await _leg_bounds(kg, chains, len(path))
    )


async def inner_nodes(kg: GraphLookups, topic: EntityId, path: RelationPath) -> set[Node]:
    """Return all nodes that a path reaches between its start and its end, also those from which it does not go on.

    The start is not among them. Costs one batched lookup per layer.
    """
    layers = await _layers(kg, topic, path[:-1], revisits=False)
    return {chain[-1] for layer in layers[1:] for chain in layer}


async def _layers(
    kg: GraphLookups, topic: EntityId, path: RelationPath, *, revisits: bool
) -> list[list[tuple[Node, ...]]]:
    """Return the chains of nodes along each beginning of a path, the empty one first, at most `MAX_FRONTIER` of each.

    `revisits` allows repeated nodes.
    """
    layers: list[list[tuple[Node, ...]]] = [[(topic,)]]
    for relation in path:
        sources = sorted({chain[-1] for chain in layers[-1] if isinstance(chain[-1], str)})
        reached = await kg.neighbours([(source, relation) for source in sources], MAX_NEIGHBOURS) if sources else {}
        chains = [
            (*chain, node)
            for chain in layers[-1]
            if isinstance(chain[-1], str)
            for node in reached[chain[-1], relation].nodes
            if revisits or node not in chain
        ]
        layers.append(chains[:MAX_FRONTIER])
    return layers


async def _leg_bounds(kg: GraphLookups, chains: Sequence[tuple[Node, ...]], length: int) -> list[tuple[int, int]]:
    """Return the start and the end of each leg, which are layers with a named node or a literal."""
    layers = [sorted({chain[at] for chain in chains}, key=node_order)[:_MAX_SAMPLE] for at in range(1, length)]
    entities = sorted({node for layer in layers for node in layer if isinstance(node, str)})
    names = await kg.labels(entities) if entities else {}
    unnamed = {id for id, name in names.items() if name is None}
    bounds = [0, *(at for at, layer in enumerate(layers, start=1) if not unnamed.issuperset(layer)), length]
    return list(pairwise(bounds))
