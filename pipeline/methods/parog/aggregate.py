"""`parog.aggregate`: the answer to the question from the results of its sub-goals (specification §5.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.llm.prompt import Prompt
from pipeline.methods.answering import Answers
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.json_replies import read_object, read_texts
from pipeline.methods.parog.node_labels import SubgoalLabels
from pipeline.methods.parog.rendering import print_answers, print_found
from pipeline.methods.parog.subgoal_result import SubgoalResult, last_answers
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import Question

_MOST_ANSWERS = 200
"""Answers that are shown of a sub-goal. More than in other prompts: the answers to the question are among them."""


@dataclass(frozen=True)
class Aggregate(Prompt[Answers]):
    """The answers to the question, or to a set operation that code could not execute."""

    role: ClassVar[str] = "parog.aggregate"
    template = load_template(__file__, "aggregate")

    question: Question
    results: tuple[SubgoalResult, ...]
    """In the order of the plan; a sub-goal that was not reached has no answers."""
    facts: tuple[GroundedPath, ...]
    """The facts that support the answers of the sub-goals."""
    labels: SubgoalLabels
    target: int | None = None
    """The id of the sub-goal to answer; None for the question."""
    left_out: int = 0
    """Facts that were found, but are too many to show."""

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "found": print_answers(self.results, self.labels, _MOST_ANSWERS),
            "facts": print_found(self.facts, self.labels, self.left_out),
            "target": "the question" if self.target is None else f"sub-goal {self.target}",
        }

    def parse(self, text: str) -> Answers:
        reply = read_object(text, "answers")
        return Answers(read_texts(reply["answers"], self.labels.is_name), text)

    def fallback(self, text: str) -> Answers:
        """Return the answers of the last sub-goal that has any, and no text: they were not read from the reply."""
        return Answers(tuple(answer.text for answer in last_answers(self.results)), "")
