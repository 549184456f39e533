"""Finds the nodes of a relation path that lead to its end: a walk from the topic entity there, and back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import NamedTuple, TypeAlias

from pipeline.kg.interface import GraphLookups
from pipeline.kg.paths import MAX_FRONTIER, MAX_NEIGHBOURS
from pipeline.normalisation import normalise
from pipeline.types import EntityId, Node, Relation

_Layer: TypeAlias = Mapping[Node, Mapping[Node, Set[Relation]]]
"""Node → the nodes to which one hop of a path leads from it → the relations by which it does."""


class LeadingHop(NamedTuple):
    """One hop of a path that leads to its end."""

    nodes: Set[Node]
    """The nodes from which it does."""
    relations: Set[Relation]
    """The relations by which it does."""


async def leading_hops(
    graph: GraphLookups,
    topic: EntityId,
    hops: Sequence[Collection[Relation]],
    is_end: Callable[[Node], bool],
    *,
    names: Collection[str],
) -> list[LeadingHop] | None:
    """Return from where, and by which relations, each hop of a path leads to an end; empty if the path leads to none.

    An end satisfies `is_end`, or has one of the `names`, if none does. None if this is not known, because the graph
    returned only some of the nodes. Each hop may follow any of several relations. Makes one batched lookup per hop.
    Raises ServiceError.
    """
    layers: list[_Layer] = []
    nodes: set[Node] = {topic}
    is_whole = True
    for relations in hops:
        entities = sorted(node for node in nodes if isinstance(node, str))
        sources = entities[:MAX_FRONTIER]
        reached = await graph.neighbours([(id, each) for id in sources for each in relations], MAX_NEIGHBOURS)
        layer: dict[Node, dict[Node, set[Relation]]] = {}
        for (id, relation), found in reached.items():
            for node in found.nodes:
                if node != topic:
                    layer.setdefault(id, {}).setdefault(node, set()).add(relation)
        layers.append(layer)
        nodes = {node for ends in layer.values() for node in ends}
        is_whole &= len(sources) == len(entities) and not any(found.truncated for found in reached.values())
    ends = {node for node in nodes if is_end(node)}
    is_whole &= len(nodes) <= MAX_FRONTIER
    if not ends and is_whole:
        ends = await _named(graph, nodes, names)
    return _leading(layers, ends) if ends else [] if is_whole else None


async def _named(graph: GraphLookups, nodes: Set[Node], names: Collection[str]) -> set[Node]:
    """Return the nodes whose name counts as equal to one of these, where other ids were given."""
    wanted = set(map(normalise, names))
    labels = await graph.labels(sorted(node for node in nodes if isinstance(node, str)))
    return {node for node, name in labels.items() if name is not None and normalise(name) in wanted}


def _leading(layers: Sequence[_Layer], ends: Set[Node]) -> list[LeadingHop]:
    """Return the hops of the walks that lead to an end; empty if none does.

    A walk that goes back to the node from which it came, as from a person through a marriage to the same person, is
    not what a path means.
    """
    onward: list[dict[Node, set[Node]]] = []
    for layer in reversed(layers):
        behind = onward[-1] if onward else dict.fromkeys(ends, ends)
        onward.append(
            {
                node: {after for after in found if behind.get(after, frozenset()) - ({node} if onward else set())}
                for node, found in layer.items()
            }
        )
    onward.reverse()
    first = {node for node, found in onward[0].items() if found}
    if not first:
        return []
    nodes = [first, *({after for found in layer.values() for after in found} for layer in onward[:-1])]
    relations = (
        {relation for node in here for after in leads.get(node, ()) for relation in layer[node][after]}
        for here, leads, layer in zip(nodes, onward, layers, strict=True)
    )
    return list(map(LeadingHop, nodes, relations))
