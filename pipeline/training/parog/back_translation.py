"""Prompts that translate a plan back into a question and compare it with the original (specification §7.3, step 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.parog.plan import Plan
from pipeline.methods.parog.replies import read_flag, read_object
from pipeline.methods.parsing import parse_leniently
from pipeline.methods.rendering import as_question, one_line
from pipeline.types import Question

BACK_TRANSLATE = Template(
    system="""\
You are given a plan: steps that are carried out over a knowledge graph, where the last one gives the answers.
Write the one question that this plan answers, as a person would ask it. Mention every name, value and date that
the plan mentions, spelled the same way, and no step numbers. Ask for nothing that the plan does not look for.

Reply with the question on one line.

Example

Plan:
1. Find the country that Tavin Orsa comes from
2. Find the languages spoken in the country of 1
what do people speak in the country that Tavin Orsa comes from?""",
    user="""\
Plan:
{{plan}}""",
)
EQUIVALENT = Template(
    system="""\
Do both questions ask for the same thing, so that every answer to one is an answer to the other? Different words
are fine; another relation, another direction, or a condition that one of them lacks is not.

Reply with a JSON object: {"equivalent": true or false}.

Example

First: what do people speak in the country that Tavin Orsa comes from?
Second: which languages are spoken in Tavin Orsa's home country?
{"equivalent": true}

First: who directed the films in which Edda Marrick plays?
Second: who plays in the films that Edda Marrick directed?
{"equivalent": false}""",
    user="""\
First: {{first}}
Second: {{second}}""",
)


@dataclass(frozen=True)
class BackTranslate(Prompt[str]):
    """The question that a plan answers; empty when no reply could be read."""

    role: ClassVar[str] = "parog.back_translate"
    template = BACK_TRANSLATE

    plan: Plan
    constants: tuple[str, ...]
    """The names and values that the question has to mention."""

    def inputs(self) -> dict[str, str]:
        return {"plan": "\n".join(f"{subgoal.id}. {one_line(subgoal.goal)}" for subgoal in self.plan)}

    def parse(self, text: str) -> str:
        lines = (line.strip("\"'` ") for line in text.splitlines() if "```" not in line)
        question = next((line for line in lines if any(map(str.isalnum, line))), None)
        if question is None:
            raise ParseError("there is no question")
        return question

    def fallback(self, text: str) -> str:
        return ""


@dataclass(frozen=True)
class JudgeEquivalent(Prompt[bool]):
    """Whether the original question and the back-translation of its plan ask the same thing."""

    role: ClassVar[str] = "parog.equivalent"
    template = EQUIVALENT

    question: Question
    translated: str
    """The back-translation."""
    constants: tuple[str, ...]
    """The names and values that the translated question has to mention."""

    def inputs(self) -> dict[str, str]:
        return {"first": as_question(self.question.text), "second": as_question(self.translated)}

    def parse(self, text: str) -> bool:
        return read_flag(parse_leniently(lambda text: read_object(text, "equivalent"), text)["equivalent"])

    def fallback(self, text: str) -> bool:
        """Return False: an unreadable reply does not confirm anything."""
        return False
