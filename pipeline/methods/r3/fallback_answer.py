"""`r3.guess`: an answer from the knowledge path, if no attempt has finished (specification §6.9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.llm.prompt import Template
from pipeline.methods.answering import AnswerPrompt
from pipeline.methods.r3.memory import Step, elide
from pipeline.methods.rendering import as_question
from pipeline.types import Question

FALLBACK_ANSWER = Template(
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
class FallbackAnswer(AnswerPrompt):
    """The best answer that the knowledge path of a halted attempt supports."""

    role: ClassVar[str] = "r3.guess"
    template = FALLBACK_ANSWER

    question: Question
    path: tuple[str, ...]
    """The knowledge path, line by line."""
    steps: tuple[Step, ...] = ()
    """The steps of the same attempt, for simulators."""
    max_characters: int = 40_000
    """Maximum length of the path in the prompt."""

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text), "path": elide(self.path, self.max_characters) or "nothing"}
