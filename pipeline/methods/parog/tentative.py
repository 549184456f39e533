"""`parog.tentative`: the model's answer to a sub-goal before anything is looked up (specification §5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.llm.prompt import Prompt
from pipeline.methods.json_replies import read_object, read_texts
from pipeline.methods.parog.node_labels import SubgoalLabels
from pipeline.methods.parog.plan import SubGoal
from pipeline.methods.parog.rendering import print_answers
from pipeline.methods.parog.subgoal_result import SubgoalResult
from pipeline.methods.rendering import as_question, one_line
from pipeline.methods.templates import load_template
from pipeline.types import Question


@dataclass(frozen=True, slots=True)
class TentativeAnswer:
    """The parsed reply: what the model believes."""

    answers: tuple[str, ...] = ()
    confidence: str = ""
    """`high`, `medium` or `low`; empty when the reply has none of these."""


@dataclass(frozen=True)
class AnswerTentatively(Prompt[TentativeAnswer]):
    """The answers to a sub-goal from the model's own knowledge."""

    role: ClassVar[str] = "parog.tentative"
    template = load_template(__file__, "tentative")

    question: Question
    subgoal: SubGoal
    dependencies: tuple[SubgoalResult, ...]
    """The results of the sub-goals that this one uses."""
    labels: SubgoalLabels

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "known": print_answers(self.dependencies, self.labels),
            "goal": one_line(self.subgoal.goal),
        }

    def parse(self, text: str) -> TentativeAnswer:
        reply = read_object(text, "answers")
        confidence = str(reply.get("confidence", "")).strip().lower()
        known = confidence if confidence in {"high", "medium", "low"} else ""
        return TentativeAnswer(read_texts(reply["answers"], self.labels.is_name), known)

    def fallback(self, text: str) -> TentativeAnswer:
        return TentativeAnswer()
