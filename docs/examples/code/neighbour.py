"""A method of one's own: the facts around the topic entities, and one call that picks the answers among them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pydantic import NonNegativeFloat, PositiveInt
from pydantic.dataclasses import dataclass as checked_dataclass

from pipeline.errors import BudgetExhausted, ParseError
from pipeline.llm.prompt import Prompt, Sampling, Template
from pipeline.methods.instance import Instance
from pipeline.methods.port import Tools
from pipeline.methods.rendering import Names, Printer, as_question, node_name
from pipeline.types import Answer, Prediction, Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

TEMPLATE = Template(
    system="""\
You are given a question and numbered facts, each ("subject", "relation", "object"). Name the numbers
of the facts that answer the question, like this: `Facts: 2, 5`. Write `Facts: none` if none does.""",
    user="""\
Question: {{question}}
{{facts}}
Facts:""",
)


@dataclass(frozen=True)
class PickFacts(Prompt[tuple[int, ...]]):
    """The places of the facts that answer the question, counted from 0."""

    role: ClassVar[str] = "neighbour.pick"

    question: Question
    found: tuple[Instance, ...]
    names: Names

    @property
    def template(self) -> Template:
        return TEMPLATE

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        facts = "\n".join(f"{number}. {printer.chain(one.triples)}" for number, one in enumerate(self.found, start=1))
        return {"question": as_question(self.question.text), "facts": facts}

    def parse(self, text: str) -> tuple[int, ...]:
        """A model's text is data: it is searched for numbers, and what is wrong with it is said in one line."""
        said = re.search(r"none\b|[0-9]{1,6}(?:\s*,\s*[0-9]{1,6})*", text, re.IGNORECASE)
        if said is None:
            raise ParseError("there is neither a number nor 'none'")
        numbers = [int(number) for number in re.findall("[0-9]+", said[0])]
        if wrong := [number for number in numbers if not 1 <= number <= len(self.found)]:
            raise ParseError(f"there is no fact {wrong[0]}")
        return tuple(dict.fromkeys(number - 1 for number in numbers))

    def fallback(self, text: str) -> tuple[int, ...]:
        """What to go on with when no reply could be read."""
        return ()

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """What a perfect model would write: this is what proves that the method is right (`llm=oracle`)."""
        places = range(1, len(self.found) + 1)
        right = [n for n in places if truth.is_sought(end := self.found[n - 1].end, node_name(end, self.names))]
        wrong = [n for n in places if n not in right]
        chosen = [slip.choice(wrong)] if slip and wrong else right
        return f"Facts: {', '.join(map(str, chosen)) or 'none'}"

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """What word similarity alone would write: the lower baseline (`llm=similarity`)."""
        scores = encoder.similarities(self.question.text, [one.path[0] for one in self.found])
        return f"Facts: {scores.index(max(scores)) + 1}"


@checked_dataclass(frozen=True, kw_only=True)
class Neighbour:
    """The keys of `conf/method/neighbour.yaml`. `beam_width`, `depth` and `retries` may be there too, for sweeps."""

    name: str = "neighbour"
    max_facts: PositiveInt = 50
    temperature: NonNegativeFloat = 0.0

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Look around each topic entity, let the model pick, and return the far ends of what it picked."""
        if not question.topic_entities:
            return Answer(status="no_topic_entity")
        try:
            found, names = await self._look_around(question, tools)
        except BudgetExhausted:
            return Answer(status="budget_exhausted")
        if not found:
            return Answer(status="no_evidence")
        prompt = PickFacts(question, found, names)
        picked = await tools.llm.ask(prompt, Sampling(temperature=self.temperature), last=True)
        tools.record("answered", picked=picked)
        ends = [found[place].end for place in picked]
        return Answer(
            predictions=tuple(
                Prediction(node_name(end, names) or str(end), id=end if isinstance(end, str) else None) for end in ends
            ),
            evidence=tuple(one.triples for one in found),
            names=names,
        )

    async def _look_around(self, question: Question, tools: Tools) -> tuple[tuple[Instance, ...], Names]:
        """Three batched lookups, however many topic entities there are: relations, neighbours, names."""
        topics = [topic.id for topic in question.topic_entities]
        around = await tools.kg.relations(topics)
        hops = [(topic, relation) for topic in topics for relation in around[topic]]
        reached = await tools.kg.neighbours(hops, self.max_facts)
        facts = [
            Instance(topic).then(relation, node) for topic, relation in hops for node in reached[topic, relation].nodes
        ]
        found = tuple(facts[: self.max_facts])
        return found, await tools.kg.labels(sorted({id for one in found for id in one.nodes if isinstance(id, str)}))
