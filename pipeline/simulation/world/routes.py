"""Routes: chains of steps from a topic to its answers, with lookup in the graph, wording and SPARQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from random import Random
from typing import TypeAlias

from pipeline.simulation.world.facts import Index, Kind
from pipeline.simulation.world.language import Step, phrase
from pipeline.simulation.world.phrases import STEPS
from pipeline.types import EntityId, Node, Relation

MAX_RELATIONS = 4
MAX_STEPS = 3
"""Questions with more steps are grammatical but hard to read."""
MAX_CHAINS = 300
"""A route with more chains than this from one topic is not asked about."""

Hops: TypeAlias = tuple[tuple[Relation, ...], ...]


@dataclass(frozen=True)
class Route:
    """Consecutive steps. The answers are the ends of all chains that visit no entity twice."""

    steps: tuple[Step, ...]

    @cached_property
    def domain(self) -> Kind:
        return self.steps[0].domain

    @cached_property
    def range(self) -> Kind:
        return self.steps[-1].range

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """The full relation path, mediator hops included."""
        return tuple(relation for step in self.steps for relation in step.relations)

    @cached_property
    def mediators(self) -> int:
        """The number of mediator nodes on the path."""
        return len(self.relations) - len(self.steps)

    @cached_property
    def returns(self) -> bool:
        """Whether the last step could lead back to an entity visited earlier."""
        return self._returns(len(self.steps) - 1)

    def ends(self, index: Index, topic: EntityId) -> list[Node]:
        """Return the distinct answers for a topic; empty if the route branches too widely."""
        return _walk(index, topic, self._hops)

    def starts(self, index: Index, answer: Node) -> list[Node]:
        """Return the topics that have an answer."""
        return _walk(index, answer, self._hops_back)

    def question(self, name: str, rng: Random) -> str:
        """Word a question for the answers."""
        thing, plural = self._thing(name, rng)
        last = self.steps[-1]
        many = plural or last.many
        return phrase(rng.choice(last.ask), thing, plural_thing=plural, plural_answer=many, other=self.returns)

    def noun(self, name: str, rng: Random) -> str:
        """Word a plural noun phrase for the answers."""
        thing, plural = self._thing(name, rng)
        template = rng.choice(self.steps[-1].noun)
        return phrase(template, thing, plural_thing=plural, plural_answer=True, other=self.returns)

    def clause(self, name: str, rng: Random) -> str:
        """Word a plural clause that is true of the answers."""
        thing, plural = self._thing(name, rng)
        return phrase(rng.choice(self.steps[-1].clause), thing, plural_thing=plural, plural_answer=True)

    def patterns(self, topic: EntityId, variable: str) -> Iterator[str]:
        """SPARQL that binds `?x` to the answers; other variables start with `variable`."""
        nodes = [_iri(topic), *(f"?{variable}{i}" for i in range(1, len(self.relations))), "?x"]
        yield from sparql_path(self.relations, nodes)
        for one, other in self._same_kind:
            yield f"FILTER ({nodes[one]} != {nodes[other]})"

    @cached_property
    def _same_kind(self) -> tuple[tuple[int, int], ...]:
        """Positions on the path whose entities are of one kind, and so must be kept apart."""
        kinds = {0: self.domain}
        position = 0
        for step in self.steps:
            position += len(step.relations)
            kinds[position] = step.range
        return tuple((one, other) for one, other in combinations(kinds, 2) if kinds[one] == kinds[other])

    @cached_property
    def _hops(self) -> Hops:
        return tuple(step.relations for step in self.steps)

    @cached_property
    def _hops_back(self) -> Hops:
        return tuple(tuple(relation.reversed for relation in reversed(hop)) for hop in reversed(self._hops))

    def _thing(self, name: str, rng: Random) -> tuple[str, bool]:
        """Return the subject of the last step as a noun phrase, and whether it is plural."""
        thing, plural = name, False
        for position, step in enumerate(self.steps[:-1]):
            many, other = plural or step.many, self._returns(position)
            thing = phrase(rng.choice(step.noun), thing, plural_thing=plural, plural_answer=many, other=other)
            plural = many
        return thing, plural

    def _returns(self, position: int) -> bool:
        """Whether the step at `position` leads to a kind visited before the step's start."""
        kinds = (self.domain, *(step.range for step in self.steps))
        return kinds[position + 1] in kinds[:position]


def routes() -> list[Route]:
    """Return every route that can be worded, within `MAX_STEPS` and `MAX_RELATIONS`."""
    found = [Route((step,)) for step in STEPS]
    for route in found:
        if route.steps[-1].noun and len(route.steps) < MAX_STEPS:
            longer = (Route((*route.steps, step)) for step in STEPS if step.domain == route.range)
            found.extend(route for route in longer if len(route.relations) <= MAX_RELATIONS)
    return found


def sparql_path(relations: Sequence[Relation], nodes: Sequence[str]) -> Iterator[str]:
    """Yield SPARQL patterns for a path of relations through the given nodes (one more than relations)."""
    for relation, (here, there) in zip(relations, pairwise(nodes), strict=True):
        head, tail = (here, there) if relation.direction == "out" else (there, here)
        yield f"{head} {_iri(relation.name)} {tail} ."


def _walk(index: Index, start: Node, hops: Hops) -> list[Node]:
    chains: list[tuple[Node, ...]] = [(start,)]
    for hop in hops:
        longer = ((*chain, node) for chain in chains for node in _follow(index, chain[-1], hop) if node not in chain)
        chains = list(dict.fromkeys(longer))
        if not 0 < len(chains) <= MAX_CHAINS:
            return []
    return list(dict.fromkeys(chain[-1] for chain in chains))


def _follow(index: Index, node: Node, hop: tuple[Relation, ...]) -> list[Node]:
    nodes = [node]
    for relation in hop:
        nodes = [neighbour for node in nodes for neighbour in index.follow(node, relation)]
    return nodes


def _iri(name: str) -> str:
    # Full IRIs, because some parsers reject prefixed names with two dots. Ids and relations need no escaping.
    return f"<http://rdf.freebase.com/ns/{name}>"
