"""`parog.aggregate`: the answer to the question from the results of its sub-goals (specification §5.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.answering import Answers
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parog.node_labels import NodeLabels
from pipeline.methods.parog.replies import read_object, read_texts
from pipeline.methods.parog.subgoal_result import SubgoalResult, last_answers
from pipeline.methods.parog.tentative import print_answers
from pipeline.methods.parsing import parse_leniently
from pipeline.methods.rendering import as_question, print_facts
from pipeline.types import Question

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
    template = AGGREGATE

    question: Question
    results: tuple[SubgoalResult, ...]
    """In the order of the plan; a sub-goal that was not reached has no answers."""
    facts: tuple[GroundedPath, ...]
    """The facts that support the answers of the sub-goals."""
    labels: NodeLabels
    target: int | None = None
    """The id of the sub-goal to answer; None for the question."""

    def inputs(self) -> dict[str, str]:
        facts = dict.fromkeys(print_facts([self.labels.fact(fact)]) for fact in self.facts)
        return {
            "question": as_question(self.question.text),
            "found": print_answers(self.results, self.labels),
            "facts": "\n".join(facts) or "none",
            "target": "the question" if self.target is None else f"sub-goal {self.target}",
        }

    def parse(self, text: str) -> Answers:
        return Answers(read_texts(parse_leniently(lambda text: read_object(text, "answers"), text)["answers"]), text)

    def fallback(self, text: str) -> Answers:
        """Return the answers of the last sub-goal that has any."""
        return Answers(tuple(answer.text for answer in last_answers(self.results)), text)
