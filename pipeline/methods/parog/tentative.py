"""`parog.tentative`: what the model knows of a sub-goal before anything is looked up (methods.md §5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.parog.outcome import Outcome
from pipeline.methods.parog.plan import SubGoal
from pipeline.methods.parog.replies import listed, read_object, read_texts, write_object
from pipeline.methods.parog.showing import Showing
from pipeline.methods.parsing import twice
from pipeline.methods.rendering import as_question, one_line
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

TENTATIVE = Template(
    system="""\
You work on one sub-goal of a question. Nothing has been looked up for it yet: answer it from what you
know, as well as you can. Give names, numbers or dates; several if there are several. An empty list is
right where you have no idea.

Reply with a JSON object: {"answers": ["…"], "confidence": "high", "medium" or "low"}.

Examples

Question: which gas makes up most of the air on the planet closest to the sun?
Found before: none
Sub-goal: Find the planet closest to the sun
{"answers": ["Mercury"], "confidence": "high"}

Question: what do people speak in the country that Tavin Orsa comes from?
Found before:
1. Find the country that Tavin Orsa comes from: Quessland
Sub-goal: Find the languages spoken in the country found in 1
{"answers": [], "confidence": "low"}""",
    user="""\
Question: {{question}}
Found before: {{known}}
Sub-goal: {{goal}}""",
)


@dataclass(frozen=True, slots=True)
class Guess:
    """What a model believes without looking."""

    answers: tuple[str, ...] = ()
    confidence: str = ""
    """`high`, `medium` or `low`; empty when it did not say."""


@dataclass(frozen=True)
class AnswerTentatively(Prompt[Guess]):
    """The answers to a sub-goal from the model's own knowledge."""

    role: ClassVar[str] = "parog.tentative"

    question: Question
    subgoal: SubGoal
    used: tuple[Outcome, ...] = ()
    """What has come of the sub-goals that this one depends on."""
    showing: Showing = field(default_factory=lambda: Showing({}))

    @property
    def template(self) -> Template:
        return TENTATIVE

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "known": print_answers(self.used, self.showing),
            "goal": one_line(self.subgoal.goal),
        }

    def parse(self, text: str) -> Guess:
        reply = twice(lambda text: read_object(text, "answers"), text)
        confidence = str(reply.get("confidence", "")).strip().lower()
        known = confidence if confidence in {"high", "medium", "low"} else ""
        return Guess(read_texts(reply["answers"]), known)

    def fallback(self, text: str) -> Guess:
        return Guess()

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """Nothing: the oracle knows what it is shown, and here it is shown nothing. A slip believes what is false."""
        if slip:
            mentioned = [entity.name for entity in self.question.topic_entities if not truth.is_answer(entity.name)]
            return write_object(answers=[slip.choice([*mentioned, "something else"])], confidence="high")
        return write_object(answers=[], confidence="low")

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """Nothing: words that are like the question's do not answer it."""
        return write_object(answers=[], confidence="low")


def print_answers(outcomes: Sequence[Outcome], showing: Showing) -> str:
    """What sub-goals have found, a line each, below the line that introduces it; `none` when there are none."""
    lines = (
        f"\n{outcome.subgoal.id}. {one_line(outcome.subgoal.goal)}: "
        f"{listed(one_line(showing.answer(found)) for found in outcome.answers)}"
        for outcome in outcomes
    )
    return "".join(lines) or "none"
