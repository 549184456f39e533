"""Replaces redirected ids of nodes by their current ids, in graphs that merge nodes and keep the old ids (Wikidata)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from pipeline.kg.interface import Batch, Hop, Neighbours, batch, node_order
from pipeline.types import EntityId

Redirects: TypeAlias = Callable[[Sequence[EntityId]], Awaitable[Batch[EntityId, EntityId | None]]]
"""Looks up where each id is redirected to; None for a current id."""

_MOST_STEPS = 5
"""Redirects that are followed from one id: a chain is rare, and a circle is an error of the graph."""


async def current_ids(ids: Sequence[EntityId], look_up: Redirects | None) -> Batch[EntityId, EntityId]:
    """Return the id of today for each id. A chain of redirects is followed to its end.

    `look_up` is None for a graph that redirects no id.
    """
    current: dict[EntityId, EntityId] = {id: id for id in ids}
    if look_up is None:
        return batch(current)
    queries, endpoint, ahead = 0, None, set(current)
    for _ in range(_MOST_STEPS):
        if not ahead:
            break
        found = await look_up(sorted(ahead))
        queries, endpoint = queries + found.queries, found.endpoint or endpoint
        step = {id: target for id, target in found.items() if target is not None}
        current = {id: step.get(now, now) for id, now in current.items()}
        ahead = set(step.values())
    return batch(current, queries=queries, endpoint=endpoint)


async def with_current_nodes(found: Batch[Hop, Neighbours], look_up: Redirects) -> Batch[Hop, Neighbours]:
    """Return the nodes that hops lead to, each under its id of today."""
    entities = sorted({node for reached in found.values() for node in reached.nodes if isinstance(node, str)})
    current = await current_ids(entities, look_up)
    nodes = {hop: _renamed(reached, current) for hop, reached in found.items()}
    return batch(nodes, queries=found.queries + current.queries, endpoint=found.endpoint or current.endpoint)


def _renamed(reached: Neighbours, current: Mapping[EntityId, EntityId]) -> Neighbours:
    nodes = {current[node] if isinstance(node, str) else node for node in reached.nodes}
    return Neighbours(tuple(sorted(nodes, key=node_order)), reached.truncated)
