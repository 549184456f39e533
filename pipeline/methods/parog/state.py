"""The state of a question while PARoG answers it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.grounded_path import GroundedPath, within
from pipeline.methods.interface import Tools
from pipeline.methods.parog.node_labels import NodeLabels
from pipeline.methods.parog.plan import Plan
from pipeline.methods.parog.subgoal_result import SubgoalResult
from pipeline.methods.rendering import Names, node_name
from pipeline.retrieval.relations import as_text
from pipeline.types import Question

T = TypeVar("T")


@dataclass
class QuestionState:
    """A question, the tools to answer it with, its plan, and the results so far."""

    question: Question
    tools: Tools
    sampling: Sampling
    parse_retries: int
    plan: Plan
    results: dict[int, SubgoalResult] = field(default_factory=dict)
    """The results of the sub-goals so far, by the ids of the sub-goals."""

    async def ask(self, prompt: Prompt[T], *, last: bool = False) -> T:
        """Ask the model. Raises BudgetExhausted unless it is the `last` call."""
        return await self.tools.llm.ask(prompt, self.sampling, retries=self.parse_retries, last=last)

    def node_labels(self, results: Iterable[SubgoalResult]) -> NodeLabels:
        """Create labels that know the names of the topic entities and of the nodes in `results`."""
        labels = NodeLabels({entity.id: entity.name for entity in self.question.topic_entities})
        for result in results:
            labels.add_names(result.names)
        return labels

    async def most_relevant(self, facts: Sequence[GroundedPath], goal: str, names: Names) -> tuple[GroundedPath, ...]:
        """Return as many facts as a prompt may show (§2.5), in their order: those most like `goal`."""
        limit = self.tools.caps.max_evidence_triples
        if sum(fact.length for fact in facts) <= limit:
            return tuple(facts)
        self.tools.record("cap_hit", cap="max_evidence_triples")
        ranking = await self.tools.retrieval.rank(goal, [_as_text(fact, names) for fact in facts])
        shown = set(within((facts[index] for index in ranking), limit))
        self.tools.record("cut", by="evidence", nodes=[fact.end for fact in facts if fact not in shown])
        return tuple(fact for fact in facts if fact in shown)


def _as_text(fact: GroundedPath, names: Names) -> str:
    return " ".join([*(as_text(step.relation.name) for step in fact.steps), node_name(fact.end, names) or ""])
