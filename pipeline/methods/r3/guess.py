"""`r3.guess`: an answer from what was learnt, when no attempt has finished (methods.md §6.9)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.llm.prompt import Template
from pipeline.methods.answering import UNKNOWN, AnswerPrompt, write_answers
from pipeline.methods.r3.memory import Step, elide, listings
from pipeline.methods.r3.planner import sought
from pipeline.methods.rendering import as_question
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

GUESS = Template(
    system="""\
An agent has looked for the answer to a question in a graph, and ran out of steps. You see what it
learnt, one line per lookup: `from -> edge, feature or search: what was found`. Give the best answer
that this allows. Think in a sentence or two, and close with the answer in braces: {answer}. Part
several answers by semicolons: {first; second}. Write names, numbers or dates, not node ids.

Example

Question: who drew up the plans for the Ondrel Bridge?
Learnt:
"Ondrel Bridge" -> search: m.0q1
"m.0q1" -> architecture.structure.architect: m.0q7 "Odo Marrick"
Reasoning: The architect of the bridge is known. So the answer is {Odo Marrick}.""",
    user="""\
Question: {{question}}
Learnt:
{{path}}
Reasoning:""",
)


@dataclass(frozen=True)
class Guess(AnswerPrompt):
    """The best answer that a halted attempt allows."""

    role: ClassVar[str] = "r3.guess"

    question: Question
    path: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    """The same for a simulated model."""
    room: int = 40_000
    """Characters that the path may take."""

    @property
    def template(self) -> Template:
        return GUESS

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text), "path": elide(self.path, self.room) or "nothing"}

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """What was seen and is sought; a slip, or having seen nothing, knows nothing."""
        found = sought(self.steps, truth)
        if truth.counted and found:
            found = [str(len(found))]
        return write_answers([UNKNOWN] if slip else found or [UNKNOWN])

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """The last nodes that were shown."""
        last = [one for one in listings(self.steps) if one.via not in {"search", "relations"}][-1:]
        return write_answers([item.name or item.text for one in last for item in one.items] or [UNKNOWN])
