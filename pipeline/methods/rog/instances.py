"""Finds all instances of relation paths in the graph, and fits them into a prompt (specification §16.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from pipeline.errors import BudgetExhausted
from pipeline.kg.interface import GraphLookups
from pipeline.methods.grounded_path import GroundedPath, Path
from pipeline.methods.parsing import contains_arrow
from pipeline.methods.rendering import CHARACTERS_PER_TOKEN, Printer, one_line, quoted
from pipeline.methods.walk import CostedChain, Layer, Move, follow, returns
from pipeline.types import Direction, Entity, EntityId, Relation

_DIRECTIONS: tuple[Direction, Direction] = ("out", "in")


@dataclass(slots=True)
class Instances:
    """The complete instances of some relation paths."""

    plans: Sequence[Path]
    """The paths, best first."""
    names: dict[EntityId, str | None]
    complete: list[CostedChain] = field(default_factory=list)
    truncated: bool = False
    """Whether a limit cut the walk."""
    exhausted: bool = False
    """Whether a limit of lookups ended the walk."""

    @property
    def by_plan(self) -> list[list[GroundedPath]]:
        """The instances of each path."""
        chains: list[list[GroundedPath]] = [[] for _ in self.plans]
        for costed in self.complete:
            if not returns(costed.chain, self.names):
                chains[costed.plan].append(costed.chain)
        return chains

    @property
    def in_order(self) -> list[GroundedPath]:
        """All instances, those of the best path first. An instance of two paths is not repeated."""
        return list(dict.fromkeys(chain for chains in self.by_plan for chain in chains))

    @property
    def in_turn(self) -> list[GroundedPath]:
        """All instances in round robin over the paths: the first of each path, then the second, and so on."""
        rounds = zip_longest(*self.by_plan)
        return list(dict.fromkeys(chain for each in rounds for chain in each if chain is not None))


async def instantiate(
    topics: Sequence[Entity], plans: Sequence[Path], kg: GraphLookups, *, max_instances: int
) -> Instances:
    """Walk from each topic entity along each path, in both directions of every relation. Return the complete chains.

    All paths and entities of a layer share one `neighbours` and one `labels` lookup. At most `max_instances` chains are
    kept, from all paths in turn. A limit of lookups ends the walk early.
    """
    found = Instances(plans, {topic.id: topic.name for topic in topics})
    layer = [CostedChain(0, GroundedPath(topic.id), plan) for plan in range(len(plans)) for topic in topics]
    try:
        for depth in range(max(map(len, plans), default=0)):
            if not layer:
                break
            reached = await _step(found, layer, depth, kg, max_instances)
            found.truncated |= reached.truncated
            found.complete += [each for each in reached.chains if len(plans[each.plan]) == depth + 1]
            layer = [each for each in reached.open if len(plans[each.plan]) > depth + 1]
    except BudgetExhausted:
        found.exhausted = True
    return found


async def _step(
    found: Instances, layer: Sequence[CostedChain], depth: int, kg: GraphLookups, max_instances: int
) -> Layer:
    """Make one hop from every chain, and look up the names of the nodes reached."""
    moves = [
        Move(0, chain, Relation(found.plans[plan][depth], direction), plan)
        for _, chain, plan in layer
        for direction in _DIRECTIONS
    ]
    # Nobody has looked up the relations of the nodes, so moves may lead nowhere: all are tried.
    reached = await follow(moves, kg, frontier=max_instances - len(found.complete), tried=len(moves))
    ends = {costed.chain.entity for costed in reached.open}
    found.names = {**await kg.labels(sorted(ends)), **found.names}
    return reached


def walked(chain: GroundedPath, printer: Printer) -> str:
    """Return a chain in the order in which it was walked, without directions: `e0 -> r1 -> e1`.

    A part that contains an arrow is in quotes.
    """
    parts = [one_line(printer.node(chain.start))]
    for step in chain.steps:
        parts += [step.relation.name, one_line(printer.node(step.node))]
    return " -> ".join(quoted(part) if contains_arrow(part) else part for part in parts)


def fit(
    chains: Iterable[GroundedPath], text: Callable[[GroundedPath], str], max_tokens: int
) -> tuple[tuple[GroundedPath, ...], tuple[str, ...]]:
    """Return the chains whose lines fit into `max_tokens` tokens of four characters each, and the distinct lines.

    A chain is shown whole or not at all. One that does not fit does not keep shorter ones out.
    """
    characters = max_tokens * CHARACTERS_PER_TOKEN
    shown: list[GroundedPath] = []
    lines: dict[str, None] = {}
    for chain in chains:
        line = text(chain)
        if line not in lines:
            if len(line) + 1 > characters:
                continue
            characters -= len(line) + 1
            lines[line] = None
        shown.append(chain)
    return tuple(shown), tuple(lines)


def tokens_of(texts: Iterable[str]) -> int:
    """Estimate the number of tokens, at four characters each."""
    return -(-sum(map(len, texts)) // CHARACTERS_PER_TOKEN)
