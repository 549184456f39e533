"""A plan back as a question, and whether it is still the same question (methods.md §7.3, step 6)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.parog.plan import Plan
from pipeline.methods.parog.replies import read_flag, read_object, write_object
from pipeline.methods.parsing import twice
from pipeline.methods.rendering import as_question, one_line
from pipeline.text import normalise
from pipeline.training.parog.constants import left_out
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

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

_ALIKE = 0.5
"""Similarity from which a policy that cannot read takes two questions for one."""


@dataclass(frozen=True)
class BackTranslate(Prompt[str]):
    """The question that a plan answers; empty when no reply could be read."""

    role: ClassVar[str] = "parog.back_translate"

    plan: Plan
    constants: tuple[str, ...]

    @property
    def template(self) -> Template:
        return BACK_TRANSLATE

    def inputs(self) -> dict[str, str]:
        return {"plan": "\n".join(f"{subgoal.id}. {one_line(subgoal.goal)}" for subgoal in self.plan)}

    def parse(self, text: str) -> str:
        worded = (line.strip("\"'` ") for line in text.splitlines() if "```" not in line)
        question = next((line for line in worded if any(map(str.isalnum, line))), None)
        if question is None:
            raise ParseError("there is no question")
        return question

    def fallback(self, text: str) -> str:
        return ""

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """The question that the plan was made from, with what it does not mention in brackets; a slip asks another."""
        if slip:
            return f"what has nothing to do with {slip.choice(self.constants) if len(self.constants) > 1 else 'it'}?"
        return in_full(truth.question, self.constants)

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """The steps one after the other: a policy without language puts nothing together."""
        return f"what comes of this: {'; '.join(one_line(subgoal.goal) for subgoal in self.plan)}?"


@dataclass(frozen=True)
class JudgeEquivalent(Prompt[bool]):
    """Whether the question that a plan came from and the one that came of it are the same."""

    role: ClassVar[str] = "parog.equivalent"

    question: Question
    translated: str
    constants: tuple[str, ...]

    @property
    def template(self) -> Template:
        return EQUIVALENT

    def inputs(self) -> dict[str, str]:
        return {"first": as_question(self.question.text), "second": as_question(self.translated)}

    def parse(self, text: str) -> bool:
        return read_flag(twice(lambda text: read_object(text, "equivalent"), text)["equivalent"])

    def fallback(self, text: str) -> bool:
        """False: who cannot be understood has not agreed."""
        return False

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """It recognises its own words; a slip says the opposite."""
        same = normalise(self.translated) == normalise(in_full(truth.question, self.constants))
        return write_object(equivalent=same != bool(slip))

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """Whether their words are alike."""
        (similarity,) = encoder.similarities(self.question.text, [self.translated])
        return write_object(equivalent=bool(similarity >= _ALIKE))


def in_full(question: Question, constants: tuple[str, ...]) -> str:
    """A question with the constants that it does not mention behind it: some only its gold query names."""
    text = as_question(question.text)
    missing = left_out(text, constants)
    return f"{text[:-1].rstrip()} ({'; '.join(map(one_line, missing))})?" if missing else text
