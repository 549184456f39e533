"""The state of one question's search in PoG, and what a prompt may show of it (specification §16.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.exploration import most_relevant_facts
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.interface import Tools
from pipeline.methods.node_labels import NodeLabels
from pipeline.methods.pog.facts import ShownFacts, Status
from pipeline.types import EntityId, Question, Relation

T = TypeVar("T")

Source: TypeAlias = Literal["round", "dead_end", "depth_limit", "alone", "budget"]
"""What an answer is from: the evaluation of a round; all kept facts after a dead end, at the depth limit or a limit
of the budget; or the model alone."""


@dataclass
class Search:
    """The question, the tools, and the three parts of the memory: subgraph, reasoning paths and status."""

    question: Question
    tools: Tools
    sampling: Sampling
    parse_retries: int
    labels: NodeLabels
    objectives: tuple[str, ...] = ()
    """Empty without guidance."""
    status: Status = ()
    """Empty without a memory."""
    round: int = 0
    retrieved: dict[EntityId, dict[GroundedPath, None]] = field(default_factory=dict)
    """The subgraph: each entity that was retrieved, kept or not, with the facts that led to it. In order."""
    large: dict[EntityId, None] = field(default_factory=dict)
    """The retrieved entities that were members of groups too large for a prompt. In order."""
    seen_in: dict[EntityId, int] = field(default_factory=dict)
    """The last round in which an entity was in the frontier or was retrieved."""
    kept: dict[GroundedPath, None] = field(default_factory=dict)
    """The kept facts of all rounds, one hop each, in order."""
    latest: tuple[GroundedPath, ...] = ()
    """The kept facts of the last round that kept some."""
    expanded: dict[EntityId, set[Relation]] = field(default_factory=dict)
    """Each entity that was in the frontier, with the relations that were followed from it."""
    arrivals: dict[EntityId, set[Relation]] = field(default_factory=dict)
    """The relations over which an entity was reached, in the direction in which they were followed."""
    came_from: dict[EntityId, set[EntityId]] = field(default_factory=dict)
    """The entities from which an entity was reached."""
    added_back: set[EntityId] = field(default_factory=set)
    reversals: int = 0
    """The number of reflections that added entities."""
    exhausted: bool = False
    _paths: dict[EntityId, dict[tuple[object, ...], GroundedPath]] = field(default_factory=dict)

    async def ask(self, prompt: Prompt[T], *, last: bool = False) -> T:
        """Ask the model. Raises BudgetExhausted unless it is the `last` call."""
        return await self.tools.llm.ask(prompt, self.sampling, retries=self.parse_retries, last=last)

    async def rank(self, texts: Sequence[str]) -> list[int]:
        """Return the positions of texts by their similarity to the question, best first."""
        return await self.tools.retrieval.rank(self.question.text, texts)

    async def most_similar(self, entities: Sequence[EntityId], limit: int) -> list[EntityId]:
        """Return the `limit` entities whose names are most similar to the question, best first."""
        ranking = await self.rank([self.labels.name(entity) or "" for entity in entities])
        return [entities[index] for index in ranking[:limit]]

    async def shown(self, facts: Sequence[GroundedPath]) -> ShownFacts:
        """Return as many of the facts as a prompt may show, after all their nodes got labels."""
        shown = await most_relevant_facts(facts, self.question.text, self.labels.names, self.tools)
        self.labels.add(node for fact in shown for node in fact.nodes)
        return ShownFacts(shown, self.labels, len(facts) - len(shown))

    def record(self, event: str, /, **payload: object) -> None:
        """Record an event of the current round."""
        self.tools.record(event, round=self.round, **payload)

    def paths(self, entity: EntityId) -> tuple[GroundedPath, ...]:
        """Return the walks from topic entities that end in an entity, one for each sequence of relations."""
        return tuple(self._paths[entity].values())

    def start_at(self, entity: EntityId) -> None:
        """Add a walk without hops to a topic entity."""
        self._add_path(GroundedPath(entity))

    def see(self, entities: Iterable[EntityId]) -> None:
        """Note that this round has dealt with the entities."""
        self.seen_in.update(dict.fromkeys(entities, self.round))

    def retrieve(self, facts: Iterable[GroundedPath]) -> None:
        """Add the facts of a round to the subgraph."""
        for fact in facts:
            if isinstance(fact.end, str):
                self.retrieved.setdefault(fact.end, {})[fact] = None
                self.see([fact.end])

    def keep(self, facts: Iterable[GroundedPath]) -> None:
        """Add the facts that a round keeps to the reasoning paths."""
        self.latest = tuple(facts)
        for fact in self.latest:
            self.kept[fact] = None
            self.arrive_by(fact)

    def arrive_by(self, fact: GroundedPath) -> None:
        """Extend the walks to the start of a fact by the fact."""
        if isinstance(fact.end, str):
            (step,) = fact.steps
            self.arrivals.setdefault(fact.end, set()).add(step.relation)
            self.came_from.setdefault(fact.end, set()).add(fact.start)
            for path in self.paths(fact.start):
                self._add_path(path.then(*step))

    def _add_path(self, path: GroundedPath) -> None:
        key = (path.start, *(step.relation for step in path.steps))
        self._paths.setdefault(path.entity, {}).setdefault(key, path)
