"""The gold context of a question: its gold answers and the relation paths of the graph that lead to them."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from pipeline.datasets.gold_paths import Operation, query_operation
from pipeline.kg.interface import AttributedGraph, KnowledgeGraph
from pipeline.kg.paths import GoldNodes, gold_paths, instantiate, leading_paths
from pipeline.normalisation import normalise
from pipeline.simulation.gold_path_search import Leg, inner_nodes, waypoints
from pipeline.simulation.gold_path_search import legs as legs_of
from pipeline.simulation.oracle_grounding import ground
from pipeline.types import Entity, EntityId, Example, Gold, LiteralNode, Node, Question, RelationPath

_Paths: TypeAlias = Mapping[EntityId, tuple[RelationPath, ...]]
_LegsByTopic: TypeAlias = Mapping[EntityId, tuple[Leg, ...]]


@dataclass(frozen=True)
class GoldContext:
    """The oracle's knowledge of one question. Simulators read it; prompts and methods never see it."""

    question: Question
    gold: Gold
    paths: _Paths
    """Topic entity → the relation paths to the sought nodes in this graph, best first; may be empty."""
    counted: frozenset[Node] = frozenset()
    """The nodes to count, if the answer is their number; empty for every other question."""
    waypoints: frozenset[Node] = frozenset()
    """Inner nodes of paths from which a sought node can be reached; with `foresight`, dead ends are excluded."""
    topics: tuple[Entity, ...] = ()
    """The nodes that the question mentions, if the dataset names no topic entities (GRBench)."""
    features: frozenset[str] = frozenset()
    """Names in `paths` that are node features, not edges (GRBench). A path without a feature leads to nodes, and their
    number is the answer."""
    legs: _LegsByTopic = field(default_factory=dict)
    """Topic entity → the legs of its best path, with the nodes that each leg reaches."""
    foresight: bool = True
    """Whether the oracle may use what no prompt shows: which nodes are dead ends, and that a node on the way to the
    answers is also one of them. Without it, `waypoints` and `legs` have all nodes that the paths reach on the way."""

    @cached_property
    def operation(self) -> Operation | None:
        """The operation of the gold SPARQL on the nodes that the paths reach; None if there is none."""
        return query_operation(self.gold.sparql) if self.gold.sparql else None

    def is_sought(self, node: Node, name: str | None) -> bool:
        """Whether a graph node, printed as `name`, is a gold answer or, for a count, a node to count."""
        return node in self.counted if self.counted else self.is_answer_node(node, name)

    def is_answer(self, text: str | None = None, *, id: EntityId | None = None) -> bool:
        """Whether a text (under `normalise`) or an id is one of the gold answers."""
        return (id is not None and id in self._ids) or (text is not None and normalise(text) in self._names)

    def is_answer_node(self, node: Node, name: str | None) -> bool:
        """Whether a graph node, printed as `name`, is one of the gold answers."""
        if isinstance(node, LiteralNode):
            return self.is_answer(node.value)
        return self.is_answer(name, id=node)

    @cached_property
    def _ids(self) -> frozenset[EntityId]:
        """The gold ids, and the aliases, because some datasets list MIDs there."""
        return frozenset(id for answer in self.gold.answers for id in (answer.id, *answer.aliases) if id)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(normalise(name) for answer in self.gold.answers for name in (answer.name, *answer.aliases))


async def find_gold_context(example: Example, kg: KnowledgeGraph, *, foresight: bool = True) -> GoldContext:
    """Look up the gold context of a question in this graph, with or without `GoldContext.foresight`.

    `gold_paths` finds the relation paths from each topic entity to a gold answer. If there are none, those of the
    dataset's own paths are used that reach at least one node (`leading_paths`), such as the nodes that a count counts.
    GRBench names no topic entities: there `ground` finds topics and paths from the text.
    """
    question, gold = example.question, example.gold
    if not question.topic_entities and isinstance(kg, AttributedGraph):
        grounded = await ground(question.text, gold, kg)
        return GoldContext(
            question,
            grounded.gold,
            grounded.paths,
            topics=grounded.topics,
            features=grounded.features,
            foresight=foresight,
        )
    known = {topic.id: gold.paths.get(topic.id, ()) for topic in question.topic_entities}
    found = await asyncio.gather(*(gold_paths(kg, topic, paths, gold.answers) for topic, paths in known.items()))
    if any(found):
        paths = _by_topic(known, found)
        goals = await GoldNodes.resolve(kg, gold.answers) if foresight else None
        inner = await _waypoints(kg, paths, goals)
        legs = await _best_legs(kg, paths, gold, foresight=foresight)
        return GoldContext(question, gold, paths, waypoints=inner, legs=legs, foresight=foresight)
    found = await asyncio.gather(*(leading_paths(kg, topic, paths, gold.answers) for topic, paths in known.items()))
    paths = _by_topic(known, found)
    legs = await _best_legs(kg, paths, gold, foresight=foresight)
    counted = await _counted(kg, paths, legs, gold)
    inner = await _waypoints(kg, paths, counted if foresight else None)
    return GoldContext(question, gold, paths, counted, inner, legs=legs, foresight=foresight)


async def _waypoints(kg: KnowledgeGraph, paths: _Paths, goals: Container[Node] | None) -> frozenset[Node]:
    """Return the inner nodes of all paths: those from which a goal is reached, or without `goals` all of them."""
    found = [
        inner_nodes(kg, topic, path) if goals is None else waypoints(kg, topic, path, goals)
        for topic, of_topic in paths.items()
        for path in of_topic
        if len(path) > 1
    ]
    return frozenset().union(*await asyncio.gather(*found))


async def _best_legs(kg: KnowledgeGraph, paths: _Paths, gold: Gold, *, foresight: bool) -> _LegsByTopic:
    """Return the legs of each topic entity's best path."""
    best = [(topic, of_topic[0]) for topic, of_topic in paths.items() if of_topic]
    found = await asyncio.gather(*(legs_of(kg, topic, path, gold.answers, foresight=foresight) for topic, path in best))
    return {topic: legs for (topic, _), legs in zip(best, found, strict=True)}


def _by_topic(topics: Iterable[EntityId], found: Iterable[Sequence[RelationPath]]) -> _Paths:
    return {topic: tuple(paths) for topic, paths in zip(topics, found, strict=True)}


async def _counted(kg: KnowledgeGraph, paths: _Paths, legs: _LegsByTopic, gold: Gold) -> frozenset[Node]:
    """Return the nodes that the best paths of all topic entities reach, if the gold answer is their number.

    Some queries count nodes that a path returns to (a marriage also leads back to its start), others exclude them. Both
    readings are tried.
    """
    best = [(topic, of_topic[0]) for topic, of_topic in paths.items() if of_topic]
    if not best or len(gold.answers) != 1:
        return frozenset()
    reached = await asyncio.gather(*(instantiate(kg, topic, path) for topic, path in best))
    onward = [of_topic[-1].nodes if of_topic else frozenset() for of_topic in legs.values()]
    for ends in ([frozenset(end.nodes) for end in reached], onward):
        common = frozenset.intersection(*ends) - paths.keys()
        if normalise(gold.answers[0].name) == str(len(common)):
            return common
    return frozenset()
