"""Prompts whose reply ends in an answer in braces, shared by every method that asks for one (methods.md §3.10)."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.instance import Instance
from pipeline.methods.parsing import answers_without_braces, brace_answers, twice
from pipeline.methods.rendering import Names, Printer, as_question, names_of, quoted
from pipeline.methods.simulation import answers_shown, most_similar_path
from pipeline.types import Question

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


FROM_FACTS = Template(
    system="""\
Answer the question with the help of facts from a knowledge graph. A fact is
("subject", "relation", "object"); the facts of one line hang together. <cvt 1>, <cvt 2> … are
unnamed nodes that hold a fact of several parts together: they are never an answer. Where the facts
leave a gap, complete it from what you know.

Think step by step, in a few sentences, and close with the answer in braces: {answer}. Part several
answers by semicolons: {first; second}. Write names as the facts have them, and nothing but names,
numbers or dates inside the braces; a name that has a semicolon, a bar or a brace in it goes in double
quotes.

Examples

Question: what movies has Lirae Dobson played in?
Facts:
[("Lirae Dobson", "film.actor.film", "<cvt 1>"), ("<cvt 1>", "film.performance.film", "The Salt Road")]
[("Lirae Dobson", "film.actor.film", "<cvt 2>"), ("<cvt 2>", "film.performance.film", "Nine Lanterns")]
Reasoning: Two roles of Lirae Dobson are known, one in The Salt Road and one in Nine Lanterns. So the
answer is {The Salt Road; Nine Lanterns}.

Question: what do people speak in the country that Tavin Orsa comes from?
Facts:
[("Tavin Orsa", "people.person.nationality", "Quessland")]
[("Orsish", "language.human_language.main_country", "Quessland")]
Reasoning: Tavin Orsa comes from Quessland, and Quessland is the main country of the language Orsish.
So the answer is {Orsish}.

Question: which of the bridges over the Ondrel was opened first?
Facts:
[("Ondrel", "geography.river.bridges", "Ondrel Bridge"), ("Ondrel Bridge", "structure.opened", "1874")]
[("Ondrel", "geography.river.bridges", "Mill Crossing"), ("Mill Crossing", "structure.opened", "1901")]
Reasoning: The Ondrel Bridge was opened in 1874, the Mill Crossing in 1901. The earlier one is the Ondrel
Bridge. So the answer is {Ondrel Bridge}.

Question: which novel by Ysolde Crane is set in Port Hallow?
Facts:
[("Ysolde Crane", "book.author.works_written", "The Glass Quay")]
[("Ysolde Crane", "book.author.works_written", "Winter Ferry")]
[("The Glass Quay", "book.book.setting", "Port Hallow")]
Reasoning: Ysolde Crane wrote The Glass Quay and Winter Ferry. Only The Glass Quay is set in Port Hallow.
So the answer is {The Glass Quay}.

Question: in which year did the war end in which Marshal Devrin fought?
Facts:
[("Marshal Devrin", "military.commander.conflicts", "Eight Harbours War")]
[("Eight Harbours War", "time.event.start_date", "1683"), ("Eight Harbours War", "time.event.years", "6")]
Reasoning: Marshal Devrin fought in the Eight Harbours War. It began in 1683 and lasted six years; its end
is not given, but six years after 1683 is 1689. So the answer is {1689}.""",
    user="""\
Question: {{question}}
Facts:
{{facts}}
Reasoning:""",
)


@dataclass(frozen=True)
class AnswerFromFacts(AnswerPrompt):
    """The answers that follow from chains of facts. A method that asks for them gives the prompt a role of its own."""

    question: Question
    chains: tuple[Instance, ...]
    names: Names

    @property
    def template(self) -> Template:
        return FROM_FACTS

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        facts = "\n".join(printer.chain(chain.triples) for chain in self.chains)
        return {"question": as_question(self.question.text), "facts": facts}

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """What the facts say. When they do not say it, or with a slip, another entity of the facts."""
        shown = names_of((node for chain in self.chains for node in chain.nodes[1:]), self.names)
        right = answers_shown(shown, truth)
        wrong = [text for text in shown.values() if text not in right] or [UNKNOWN]
        if slip:
            return write_answers([slip.choice(wrong)])
        return write_answers(right or wrong[:1])

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """What the relation path most like the question ends in."""
        best = most_similar_path([chain.path for chain in self.chains], self.question.text, encoder)
        ends = names_of((chain.end for chain in self.chains if chain.path == best), self.names)
        return write_answers(dict.fromkeys(ends.values()) or [UNKNOWN])


WITHOUT_FACTS = Template(
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
class AnswerWithoutFacts(AnswerPrompt):
    """The model alone, step by step (methods.md §6.13). A method that asks it gives the prompt a role of its own."""

    question: Question

    @property
    def template(self) -> Template:
        return WITHOUT_FACTS

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text)}

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """Nothing: the oracle knows what it is shown, or a search that found nothing would count as a success."""
        return write_answers([UNKNOWN])

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """Nothing: words that are like the question's do not answer it."""
        return write_answers([UNKNOWN])
