"""Follows relations from a frontier, and chooses among what they lead to (specification §2.5, §5.3, §8.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field

from pipeline.errors import BudgetExhausted
from pipeline.kg.interface import GraphLookups, Hop, Neighbours
from pipeline.methods.grounded_path import GroundedPath, within
from pipeline.methods.interface import Tools
from pipeline.methods.rendering import Names, node_name
from pipeline.retrieval.relations import as_text
from pipeline.types import EntityId, LiteralNode, Node, Relation

MAX_TAILS = 500
"""Limit of the nodes that one relation of one entity leads to (specification §8.2)."""


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes that one entity leads to over one relation, or over two with mediators between them."""

    source: EntityId
    path: tuple[Relation, ...]
    facts: tuple[GroundedPath, ...]
    """One per reached node."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The nodes that one round has reached."""

    groups: tuple[Group, ...] = ()
    names: Names = field(default_factory=dict)
    """The names of all entities on the way, mediators included."""
    truncated: bool = False
    """Whether the limit cut off some nodes."""


async def reach(hops: Sequence[Hop], kg: GraphLookups, *, limit: int, expand_cvt: bool) -> Reached:
    """Follow relations; with `expand_cvt`, follow all relations of the mediators that they lead to.

    It takes one `neighbours` and one `labels` lookup; with mediators, one more of each and one `relations` lookup.
    """
    found = await kg.neighbours(hops, limit)
    names = dict(await kg.labels(entities_among(found.values())))
    truncated = any(reached.truncated for reached in found.values())
    beyond: Mapping[EntityId, Sequence[tuple[Relation, Node]]] = {}
    if expand_cvt:
        behind = await _behind([id for id, name in names.items() if name is None], kg, limit)
        names.update(await kg.labels([id for id in entities_among(behind.values()) if id not in names]))
        truncated |= any(reached.truncated for reached in behind.values())
        beyond = _by_mediator(behind)
    groups: dict[tuple[EntityId, tuple[Relation, ...]], dict[Node, GroundedPath]] = {}
    for (source, relation), reached in found.items():
        for node in reached.nodes:
            first = GroundedPath(source).then(relation, node)
            onward = [fact for step in beyond.get(str(node), ()) if (fact := first.then(*step)).end != source]
            for fact in onward or [first]:
                path = tuple(step.relation for step in fact.steps)
                groups.setdefault((source, path), {}).setdefault(fact.end, fact)
    return Reached(
        tuple(Group(source, path, tuple(facts.values())) for (source, path), facts in groups.items()),
        names,
        truncated,
    )


@contextmanager
def selecting(nodes: Iterable[Node], tools: Tools) -> Iterator[None]:
    """Record that the nodes were cut if the budget ends the selection among them."""
    try:
        yield
    except BudgetExhausted:
        tools.record("cut", by="cap", nodes=list(nodes))
        raise


async def most_relevant_facts(
    facts: Sequence[GroundedPath], goal: str, names: Names, tools: Tools
) -> tuple[GroundedPath, ...]:
    """Return as many facts as a prompt may show (§2.5), in their order: those most like `goal`."""
    limit = tools.caps.max_evidence_triples
    if sum(fact.length for fact in facts) <= limit:
        return tuple(facts)
    tools.record("cap_hit", cap="max_evidence_triples")
    ranking = await tools.retrieval.rank(goal, [fact_text(fact, names) for fact in facts])
    shown = set(within((facts[index] for index in ranking), limit))
    tools.record("cut", by="evidence", nodes=[fact.end for fact in facts if fact not in shown])
    return tuple(fact for fact in facts if fact in shown)


def record_cut_evidence(tools: Tools, kept: Sized, of: Sized, *, shown: Sized | None = None) -> None:
    """Record that `budget.max_evidence_triples` has cut a list, of which it has left `kept` (§2.5).

    `shown` is what of this a prompt had room for. If that is less, not the budget has cut the list, but the prompt.
    """
    if len(kept) < len(of) and (shown is None or len(shown) == len(kept)):
        tools.record("cap_hit", cap="max_evidence_triples")


def entities_among(reached: Iterable[Neighbours]) -> list[EntityId]:
    """Return the entities among the nodes of several lookups, sorted."""
    return sorted({node for neighbours in reached for node in neighbours.nodes if not isinstance(node, LiteralNode)})


def is_number(node: Node) -> bool:
    """Return whether a node is a literal of digits alone."""
    return isinstance(node, LiteralNode) and node.value.isascii() and node.value.isdigit()


def fact_text(fact: GroundedPath, names: Names) -> str:
    """Return the words of a fact by which it is compared with a question: its relations and the node it leads to."""
    return " ".join([*(as_text(step.relation.name) for step in fact.steps), node_name(fact.end, names) or ""])


async def _behind(unnamed: Sequence[EntityId], kg: GraphLookups, limit: int) -> Mapping[Hop, Neighbours]:
    """Return the neighbours of mediators: unnamed nodes with outgoing relations (§8.5, for nodes without a type)."""
    around = await kg.relations(unnamed)
    mediators = [id for id in unnamed if any(relation.direction == "out" for relation in around[id])]
    return await kg.neighbours([(id, relation) for id in mediators for relation in around[id]], limit)


def _by_mediator(behind: Mapping[Hop, Neighbours]) -> dict[EntityId, list[tuple[Relation, Node]]]:
    steps: dict[EntityId, list[tuple[Relation, Node]]] = {}
    for (mediator, relation), reached in behind.items():
        steps.setdefault(mediator, []).extend((relation, node) for node in reached.nodes)
    return steps
