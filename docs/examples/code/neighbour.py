"""An example method: look up the facts around the topic entities, and ask the model which of them answer."""

import re
from dataclasses import dataclass

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass as checked_dataclass

from pipeline import Answer, BudgetExhausted, ParseError, Prompt, Question, Sampling, Template, Tools
from pipeline.methods.answer_linking import link
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.rendering import Names, Printer, names_of


@dataclass(frozen=True)
class PickFacts(Prompt[list[int]]):
    question: Question
    facts: list[GroundedPath]
    names: Names
    role = "neighbour.pick"
    template = Template(
        system="Name the numbers of the facts that answer the question, such as `Facts: 2, 5`, or write `Facts: none`.",
        user="Question: {{question}}\n{{facts}}\nFacts:",
    )

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        facts = (f"{number}. {printer.chain(fact.triples)}" for number, fact in enumerate(self.facts, start=1))
        return {"question": self.question.text, "facts": "\n".join(facts)}

    def parse(self, text: str) -> list[int]:
        numbers = [int(number) for number in re.findall("[0-9]{1,6}", text)]
        if not numbers and "none" not in text.lower():
            raise ParseError("there is neither a number nor 'none'")  # the model is asked again
        return [number - 1 for number in numbers if 1 <= number <= len(self.facts)]

    def fallback(self, text: str) -> list[int]:
        return []  # the value when no reply could be parsed


@checked_dataclass(frozen=True, kw_only=True)
class Neighbour:
    name: str
    max_nodes: PositiveInt

    async def answer(self, question: Question, tools: Tools) -> Answer:
        topics = [topic.id for topic in question.topic_entities]
        try:
            around = await tools.kg.relations(topics)
            hops = [(id, relation) for id in topics for relation in around[id]]
            found = await tools.kg.neighbours(hops, self.max_nodes)
            facts = [GroundedPath(hop[0]).then(hop[1], node) for hop in hops for node in found[hop].nodes]
            names = await tools.kg.labels(sorted({id for fact in facts for id in fact.nodes if isinstance(id, str)}))
            picked = await tools.llm.ask(PickFacts(question, facts, names), Sampling())
        except BudgetExhausted:
            return Answer(status="budget_exhausted")
        ends = [facts[index].end for index in picked]
        predictions = link(names_of(ends, names).values(), ends, names)
        evidence = tuple(fact.triples for fact in facts)
        return Answer(predictions, evidence=evidence, names=names, status="ok" if facts else "no_evidence")
