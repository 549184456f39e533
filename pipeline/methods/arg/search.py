"""The search for one question: its tree so far, the model, and what was looked up in the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pipeline.methods.arg.generation import GeneratedSegment, Generator
from pipeline.methods.arg.settings import Settings
from pipeline.methods.arg.tokens import RETRIEVE_RELATION
from pipeline.methods.arg.transcript import Segment
from pipeline.methods.arg.tree import Leaf, Node, best_leaves, excluded_relations
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.interface import Tools
from pipeline.types import EntityId, Question, Relation

T = TypeVar("T")


@dataclass
class Search:
    """A question, the tools to answer it, and the tree so far."""

    settings: Settings
    question: Question
    tools: Tools
    depth: int = 0
    """The number of the current hop; 0 before the first."""
    relations: dict[EntityId, Sequence[Relation]] = field(default_factory=dict)
    """The relations at each entity that was looked up."""
    names: dict[EntityId, str | None] = field(default_factory=dict)
    """The names of all entities met so far."""
    frontier: Sequence[Node] = ()
    """The nodes to extend."""
    deepest: Sequence[Node] = ()
    """The last frontier that was not empty."""
    leaves: list[Leaf] = field(default_factory=list)
    exhausted: bool = False
    """Whether a limit on calls, lookups or time was hit."""
    model: Generator = field(init=False)

    def __post_init__(self) -> None:
        topics = self.question.topic_entities
        self.model = self.settings.model(self.tools)
        self.names.update((topic.id, topic.name) for topic in topics)
        self.advance([Node(RETRIEVE_RELATION, tuple(GroundedPath(topic.id) for topic in topics))])

    @property
    def is_open(self) -> bool:
        """Whether there is a node to extend and no limit was met."""
        return bool(self.frontier) and not self.exhausted

    @property
    def has_answer(self) -> bool:
        """Whether a leaf has an answer."""
        return bool(best_leaves(self.leaves))

    def advance(self, frontier: Sequence[Node]) -> None:
        """Make `frontier` the nodes to extend."""
        self.frontier = frontier
        self.deepest = frontier or self.deepest

    def record_cut(self, by: str, nodes: Iterable[Node]) -> None:
        """Record that the current entities of some nodes are not explored further."""
        self.tools.record("cut", by=by, nodes=[walk.end for node in nodes for walk in node.walks])

    async def generate(self, segments: Sequence[Segment[T]], *, last: bool = False) -> list[GeneratedSegment[T] | None]:
        """Write all segments concurrently, in order; None for one that a limit prevented."""
        level = await self.model.write(segments, last=last)
        self.exhausted |= level.met_limit
        return level.segments

    def relations_to_follow(self, node: Node) -> Mapping[EntityId, Sequence[Relation]]:
        """Return the relations to follow from each current entity of a node (specification §4.5.1, §8.4)."""
        followed: dict[EntityId, Sequence[Relation]] = {}
        for entity, walk in node.walk_to.items():
            around = self.relations.get(entity, ())
            excluded = excluded_relations(node, walk, self.names)
            self.tools.record(
                "cut", by="cap", relations=sorted(excluded.intersection(around) - node.tried), at=[entity]
            )
            followed[entity] = [relation for relation in around if relation not in excluded]
        return followed

    async def look_up_relations(self, entities: Iterable[EntityId]) -> Mapping[EntityId, Sequence[Relation]]:
        """Look up the relations at the entities that are new, up to the limit; return those of all entities."""
        new = [entity for entity in dict.fromkeys(entities) if entity not in self.relations]
        self.relations.update(await self.tools.kg.relations(new[: self.tools.caps.max_frontier]))
        return self.relations

    async def look_up_names(self, entities: Iterable[EntityId]) -> None:
        """Look up the names of the entities that are new."""
        new = sorted({entity for entity in entities if entity not in self.names})
        self.names.update(await self.tools.kg.labels(new))
