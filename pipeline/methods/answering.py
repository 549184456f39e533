"""Prompts for an answer in braces, which several methods share (specification §3.10)."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import answers_without_braces, brace_answers, parse_leniently
from pipeline.methods.rendering import Names, Printer, as_question
from pipeline.types import Question


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one reply."""

    texts: tuple[str, ...]
    """In the order of the reply, without duplicates; empty when none could be read."""
    raw: str
    """The whole reply."""


class AnswerPrompt(Prompt[Answers], ABC):
    """A question answered in braces. If no reply has braces, the text after "answer is" in the last reply is read."""

    def parse(self, text: str) -> Answers:
        return Answers(parse_leniently(brace_answers, text), text)

    def fallback(self, text: str) -> Answers:
        return Answers(answers_without_braces(text), text)


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
    """A question answered from chains of facts. Each method subclasses it with its own role."""

    template = FROM_FACTS

    question: Question
    chains: tuple[GroundedPath, ...]
    names: Names

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        facts = "\n".join(printer.chain(chain.triples) for chain in self.chains)
        return {"question": as_question(self.question.text), "facts": facts}


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
    """A question answered by the model alone (specification §6.13). Each method subclasses it with its own role."""

    template = WITHOUT_FACTS

    question: Question

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text)}
