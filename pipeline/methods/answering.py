"""Prompts whose reply ends in an answer in braces, shared by every method that asks for one (methods.md §3.10)."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.parsing import answers_without_braces, brace_answers, twice
from pipeline.methods.rendering import Names, as_question, node_name, quoted
from pipeline.text import normalise
from pipeline.types import EntityId, Node, Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

_NEEDS_QUOTES = re.compile(r"[{};|\"'\\\n]")

UNKNOWN = "unknown"
"""What a simulated model answers when it knows nothing."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one reply."""

    texts: tuple[str, ...]
    """In the order given, without repeats; empty when none could be read."""
    raw: str
    """The whole reply."""


class AnswerPrompt(Prompt[Answers], ABC):
    """A question answered in braces. Without braces in any reply, what follows "answer is" in the last one counts."""

    def parse(self, text: str) -> Answers:
        return Answers(twice(brace_answers, text), text)

    def fallback(self, text: str) -> Answers:
        return Answers(answers_without_braces(text), text)


def write_answers(texts: Iterable[str]) -> str:
    """A reply in the form that `AnswerPrompt` reads."""
    written = (quoted(text) if _NEEDS_QUOTES.search(text) else text for text in texts)
    return f"I put together what is known. So the answer is {{{'; '.join(written)}}}."


def link(texts: Iterable[str], nodes: Iterable[Node], names: Names) -> list[tuple[str, EntityId | None]]:
    """Each answer with the id of the one entity among `nodes` that has this name, if there is exactly one."""
    ids: dict[str, set[EntityId]] = {}
    for node in set(nodes):
        if isinstance(node, str) and (name := node_name(node, names)):
            ids.setdefault(normalise(name), set()).add(node)
    bearers = [(text, ids.get(normalise(text), set())) for text in texts]
    return [(text, next(iter(found)) if len(found) == 1 else None) for text, found in bearers]


ANSWER_ALONE = Template(
    system="""\
Answer the question from what you know. Think step by step, in a few sentences, and close with the
answer in braces: {answer}. Part several answers by semicolons: {first; second}. Give names, numbers
or dates only, nothing else, inside the braces; a name that has a semicolon, a bar or a brace in it
goes in double quotes. If you are not certain, give your best guess.

Examples

Question: which gas makes up most of the air we breathe?
Reasoning: Air is roughly four fifths nitrogen and one fifth oxygen, with traces of other gases. The
largest share is nitrogen. So the answer is {Nitrogen}.

Question: what are the primary colours of light?
Reasoning: Screens mix all colours from three lights. These are red, green and blue. So the answer is
{Red; Green; Blue}.

Question: how many legs do two spiders and one ant have together?
Reasoning: A spider has eight legs, so two have sixteen. An ant has six. Sixteen and six are
twenty-two. So the answer is {22}.

Question: which is the larger of the two moons of Mars?
Reasoning: Mars has the moons Phobos and Deimos. Phobos is about 22 km across, Deimos about 12 km. The
larger one is Phobos. So the answer is {Phobos}.

Question: in what year did the century begin in which the year 1450 lies?
Reasoning: The year 1450 lies in the fifteenth century. Its first year is 1401. So the answer is
{1401}.""",
    user="""\
Question: {{question}}
Reasoning:""",
)


@dataclass(frozen=True)
class AnswerAlone(AnswerPrompt):
    """The model alone, step by step (methods.md §6.13). A method that falls back on it gives it a role of its own."""

    role: ClassVar[str] = "cot.answer"

    question: Question

    @property
    def template(self) -> Template:
        return ANSWER_ALONE

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text)}

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """Gold, for a perfect model knows it; a slip names something of the question instead."""
        if slip:
            mentioned = [entity.name for entity in self.question.topic_entities if not truth.is_answer(entity.name)]
            return write_answers([slip.choice([*mentioned, UNKNOWN])])
        return write_answers([answer.name for answer in truth.gold.answers] or [UNKNOWN])

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """Nothing: words that are like the question's do not answer it."""
        return write_answers([UNKNOWN])
