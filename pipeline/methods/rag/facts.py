"""Collects the facts around the topic entities of a graph of triples (specification §16.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.errors import BudgetExhausted
from pipeline.methods.exploration import reach
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.interface import Tools
from pipeline.methods.rag.nodes import Order
from pipeline.types import EntityId, LiteralNode, Question


@dataclass(slots=True)
class Facts:
    """The facts around the topic entities."""

    names: dict[EntityId, str | None]
    rings: list[dict[EntityId, list[GroundedPath]]] = field(default_factory=list)
    """For each ring, its entities and the chains of facts that start at each of them; the topic entities first."""
    exhausted: bool = False
    """Whether a limit of lookups ended the collection."""

    def in_order(self, order: Order) -> tuple[GroundedPath, ...]:
        """Return the chains as a prompt shows them. A chain of the same facts, walked back, is not repeated."""
        first, *later = self.rings or [{}]
        beyond: Mapping[EntityId, list[GroundedPath]] = later[0] if later else {}
        chains = [chain for starting in first.values() for chain in starting]
        if order == "breadth":
            chains += [chain for starting in beyond.values() for chain in starting]
        else:
            chains = [one for chain in chains for one in (chain, *beyond.get(str(chain.end), ()))]
        unique: dict[frozenset[object], GroundedPath] = {}
        for chain in chains:
            unique.setdefault(frozenset(chain.triples), chain)
        return tuple(unique.values())


async def collect(question: Question, tools: Tools, *, hops: int, per_relation: int, expand_cvt: bool) -> Facts:
    """Look up the facts within `hops` of the topic entities, `per_relation` for each relation of an entity.

    With 0 hops, only the literals of the topic entities are kept. A mediator belongs to the fact that it holds and is
    no hop of its own. A limit of lookups ends the collection early.
    """
    facts = Facts({topic.id: topic.name for topic in question.topic_entities})
    ring = list(facts.names)
    try:
        for _ in range(max(hops, 1)):
            ring = await _add_ring(facts, ring, tools, per_relation, expand_cvt=expand_cvt)
        tools.record("cut", by="depth", nodes=ring)
    except BudgetExhausted:
        facts.exhausted = True
    if hops == 0:
        facts.rings = [{id: _literals(chains) for id, chains in each.items()} for each in facts.rings]
    return facts


async def _add_ring(
    facts: Facts, ring: Sequence[EntityId], tools: Tools, per_relation: int, *, expand_cvt: bool
) -> list[EntityId]:
    """Look up the facts of each entity of a ring, and return the entities of the next one."""
    if len(ring) > tools.caps.max_frontier:
        tools.record("cap_hit", cap="max_frontier")
        ring = ring[: tools.caps.max_frontier]
    around = await tools.kg.relations(ring)
    hops = [(id, relation) for id in ring for relation in around[id]]
    reached = await reach(hops, tools.kg, limit=per_relation, expand_cvt=expand_cvt)
    facts.names = {**reached.names, **facts.names}
    added: dict[EntityId, list[GroundedPath]] = {id: [] for id in ring}
    for group in reached.groups:
        added[group.source] += group.facts
    facts.rings.append(added)
    tools.record("expanded", entities=len(ring), found=sum(map(len, added.values())), truncated=reached.truncated)
    known = {id for each in facts.rings for id in each}
    ends = (chain.end for chains in added.values() for chain in chains)
    return list(dict.fromkeys(end for end in ends if isinstance(end, str) and end not in known))


def _literals(chains: Sequence[GroundedPath]) -> list[GroundedPath]:
    return [chain for chain in chains if isinstance(chain.end, LiteralNode)]
