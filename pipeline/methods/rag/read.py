"""The prompts `rag.read` and `rag.read_facts`: answer from what was found (specification §16.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt
from pipeline.methods.answering import AnswerFromFacts, Answers
from pipeline.methods.rag.nodes import NodeText
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import Question


@dataclass(frozen=True)
class ReadNodes(Prompt[Answers]):
    """The question with nodes of a graph whose nodes have features (GRBench)."""

    role: ClassVar[str] = "rag.read"
    template = load_template(__file__, "read_nodes")

    question: Question
    nodes: tuple[NodeText, ...]

    def inputs(self) -> dict[str, str]:
        lines = [line for node in self.nodes for line in node.lines]
        return {"question": as_question(self.question.text), "context": "\n".join([*lines, "", ""]) if lines else ""}

    def parse(self, text: str) -> Answers:
        if not text.strip():
            raise ParseError("the reply is empty")
        return Answers((text.strip(),), text)

    def fallback(self, text: str) -> Answers:
        return Answers((), text)


@dataclass(frozen=True)
class ReadFacts(AnswerFromFacts):
    """The question with facts of a graph of triples. It has the braces of the other methods, so that lists count."""

    role: ClassVar[str] = "rag.read_facts"
    template = load_template(__file__, "read_facts")

    def inputs(self) -> dict[str, str]:
        shown = super().inputs()
        facts = f"Facts:\n{shown['facts']}\n\n" if self.chains else ""
        return {"question": shown["question"], "context": facts}
