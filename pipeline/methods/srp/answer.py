"""`srp.answer` and `srp.answer_cot`: the answer from the evidence, or without any (methods.md §3.10)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.llm.prompt import Template
from pipeline.methods.answering import UNKNOWN, AnswerAlone, AnswerPrompt, write_answers
from pipeline.methods.instance import Instance
from pipeline.methods.rendering import Names, Printer, as_question, node_name
from pipeline.methods.simulation import answers_shown, most_similar_path
from pipeline.types import Node, Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

ANSWER = Template(
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
class AnswerFromEvidence(AnswerPrompt):
    """The answers that follow from the evidence."""

    role: ClassVar[str] = "srp.answer"

    question: Question
    evidence: tuple[Instance, ...]
    names: Names

    @property
    def template(self) -> Template:
        return ANSWER

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        facts = "\n".join(printer.chain(instance.triples) for instance in self.evidence)
        return {"question": as_question(self.question.text), "facts": facts}

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """What the facts say. When they do not say it, or with a slip, another entity of the facts."""
        shown = self._named([node for instance in self.evidence for node in instance.nodes[1:]])
        right = answers_shown(shown, truth)
        wrong = [text for text in shown.values() if text not in right] or [UNKNOWN]
        if slip:
            return write_answers([slip.choice(wrong)])
        return write_answers(right or wrong[:1])

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """What the relation path most like the question ends in."""
        best = most_similar_path([instance.path for instance in self.evidence], self.question.text, encoder)
        ends = self._named([instance.end for instance in self.evidence if instance.path == best])
        return write_answers(dict.fromkeys(ends.values()) or [UNKNOWN])

    def _named(self, nodes: list[Node]) -> dict[Node, str]:
        named = ((node, node_name(node, self.names)) for node in nodes)
        return {node: name for node, name in named if name}


@dataclass(frozen=True)
class AnswerWithoutEvidence(AnswerAlone):
    """The model alone, when there is no topic entity or nothing was found."""

    role: ClassVar[str] = "srp.answer_cot"

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """Nothing: the oracle knows what it is shown, or a search that found nothing would count as a success."""
        return write_answers([UNKNOWN])
