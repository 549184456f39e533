"""The state of a question while PARoG answers it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.interface import Tools
from pipeline.methods.parog.node_labels import SubgoalLabels
from pipeline.methods.parog.plan import Plan
from pipeline.methods.parog.subgoal_result import SubgoalResult
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

    def node_labels(self, results: Iterable[SubgoalResult]) -> SubgoalLabels:
        """Create labels that know the names of the topic entities and of the nodes in `results`."""
        labels = SubgoalLabels({entity.id: entity.name for entity in self.question.topic_entities})
        for result in results:
            labels.add_names(result.names)
        return labels
