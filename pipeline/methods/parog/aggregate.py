"""`parog.aggregate`: the answer to the question from the answers to its sub-goals (methods.md §5.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.answering import UNKNOWN, Answers
from pipeline.methods.instance import Instance
from pipeline.methods.parog.guidance import carry_out, is_last, perfect_plan, recognised, works_out
from pipeline.methods.parog.outcome import Found, Outcome
from pipeline.methods.parog.plan import Plan, waves
from pipeline.methods.parog.replies import read_object, read_texts, write_object
from pipeline.methods.parog.sets import execute, is_executable
from pipeline.methods.parog.showing import Showing
from pipeline.methods.parog.tentative import print_answers
from pipeline.methods.parsing import twice
from pipeline.methods.rendering import as_question, print_facts
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

AGGREGATE = Template(
    system="""\
A question was broken down into sub-goals, and each was pursued in a knowledge graph. You are given what
was found for each, and the facts it rests on: ("subject", "relation", "object"), with "relation /
relation" where an unnamed node lies between. Put it together and answer what you are asked to answer.
Where a sub-goal has found nothing, work it out from the others, from the facts, or from what you know.

Think step by step, in a few sentences. Then close with a JSON object: {"answers": ["…"]}. Write names as
they were found.

Examples

Question: which novels by Ysolde Crane are set in Port Hallow?
Found:
1. Find the novels written by Ysolde Crane: The Glass Quay; Winter Ferry
2. Find the works set in Port Hallow: The Glass Quay; The Salt Road
3. Keep the novels found in both 1 and 2: The Glass Quay
Facts:
[("Ysolde Crane", "book.author.works_written", "The Glass Quay")]
[("The Glass Quay", "book.book.setting", "Port Hallow")]
Answer: the question
Only The Glass Quay was found both ways. {"answers": ["The Glass Quay"]}

Question: which bridge over the Ondrel was opened first?
Found:
1. Find the bridges over the Ondrel: Ondrel Bridge; Mill Crossing
2. Find when each bridge of 1 was opened: 1874; 1901
3. Keep the bridge of 1 with the earliest date of 2: none
Facts:
[("Ondrel Bridge", "structure.opened", "1874")]
[("Mill Crossing", "structure.opened", "1901")]
Answer: sub-goal 3
The Ondrel Bridge was opened in 1874, the Mill Crossing in 1901. {"answers": ["Ondrel Bridge"]}""",
    user="""\
Question: {{question}}
Found: {{found}}
Facts:
{{facts}}
Answer: {{target}}""",
)


@dataclass(frozen=True)
class Aggregate(Prompt[Answers]):
    """The answers to the question, or to a set operation that code could not execute."""

    role: ClassVar[str] = "parog.aggregate"

    question: Question
    outcomes: tuple[Outcome, ...]
    """In the order of the plan; of a sub-goal that was not reached, without answers."""
    facts: tuple[Instance, ...]
    """The key facts: those that answers rest on."""
    showing: Showing
    target: int | None = None
    """The sub-goal to answer; None for the question."""

    @property
    def template(self) -> Template:
        return AGGREGATE

    def inputs(self) -> dict[str, str]:
        facts = dict.fromkeys(print_facts([self.showing.fact(fact)]) for fact in self.facts)
        return {
            "question": as_question(self.question.text),
            "found": print_answers(self.outcomes, self.showing),
            "facts": "\n".join(facts) or "none",
            "target": "the question" if self.target is None else f"sub-goal {self.target}",
        }

    def parse(self, text: str) -> Answers:
        return Answers(read_texts(twice(lambda text: read_object(text, "answers"), text)["answers"]), text)

    def fallback(self, text: str) -> Answers:
        """The answers of the last sub-goal that has any."""
        return Answers(tuple(found.text for found in last_answers(self.outcomes)), text)

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """What the perfect plan comes to by the answers and the facts shown; gold is known when seen among them.

        Only what a set operation comes to is taken as it is. With a slip, another answer or node shown.
        """
        right = self._right(truth)
        if slip:
            shown = set(self._texts(found for outcome in self.outcomes for found in outcome.answers))
            shown.update(self.showing.text(fact.end) for fact in self.facts)
            return write_object(answers=[slip.choice(sorted(shown.difference(right)) or [UNKNOWN])])
        return write_object(answers=right)

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """The last answers there are: words that are alike put nothing together."""
        return write_object(answers=self._texts(last_answers(self.outcomes)))

    def _right(self, truth: Truth) -> list[str]:
        wanted = next((one for one in self.outcomes if one.subgoal.id == self.target), self.outcomes[-1])
        plan = perfect_plan(truth)
        if self.target is not None:
            goals = [step.subgoal.goal for step in plan]
            plan = plan[: goals.index(wanted.subgoal.goal) + 1] if wanted.subgoal.goal in goals else ()
        shown = wanted.answers if is_last(truth, wanted.subgoal) else ()
        worked_out = shown or carry_out(plan, self.facts, self.showing.names)
        if worked_out and works_out(truth):
            return self._texts(worked_out)
        seen = (worked_out, *(outcome.answers for outcome in reversed(self.outcomes)))
        known = next(filter(None, (recognised(truth, answers) for answers in seen)), ())
        return self._texts(known or worked_out or last_answers(self.outcomes))

    def _texts(self, answers: Iterable[Found]) -> list[str]:
        return list(dict.fromkeys(map(self.showing.answer, answers)))


def aggregate_tentatively(plan: Plan, outcomes: Mapping[int, Outcome]) -> tuple[Found, ...]:
    """What the tentative answers alone come to: set operations are executed in code, then the last answers count."""
    tentative: dict[int, Outcome] = {}
    for subgoal in (subgoal for wave in waves(plan) for subgoal in wave):
        answers = tuple(map(Found, outcomes[subgoal.id].tentative)) if subgoal.id in outcomes else ()
        used = [tentative[id] for id in subgoal.uses]
        if is_executable(subgoal, used):
            answers = execute(subgoal, used) or answers
        tentative[subgoal.id] = Outcome(subgoal, answers)
    return last_answers(tentative[subgoal.id] for subgoal in plan)


def last_answers(outcomes: Iterable[Outcome]) -> tuple[Found, ...]:
    """The answers of the last sub-goal that has any."""
    answered = [outcome.answers for outcome in outcomes if outcome.answers]
    return answered[-1] if answered else ()
