"""Prompts for an answer in braces, which several methods share (specification §3.10)."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field

from pipeline.llm.prompt import Prompt
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import answers_without_braces, brace_answers, parse_leniently
from pipeline.methods.rendering import Names, Printer, as_question
from pipeline.methods.templates import load_template
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


@dataclass(frozen=True)
class AnswerFromFacts(AnswerPrompt):
    """A question answered from chains of facts. Each method subclasses it with its own role."""

    template = load_template(__file__, "from_facts")

    question: Question
    chains: tuple[GroundedPath, ...]
    names: Names
    left_out: int = field(default=0, kw_only=True)
    """Chains that were found and are not shown."""

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        lines = [printer.chain(chain.triples) for chain in self.chains]
        if self.left_out:
            lines.append(f"({self.left_out} more were found)")
        return {"question": as_question(self.question.text), "facts": "\n".join(lines)}


@dataclass(frozen=True)
class AnswerWithoutFacts(AnswerPrompt):
    """A question answered by the model alone (specification §6.13). Each method subclasses it with its own role."""

    template = load_template(__file__, "without_facts")

    question: Question

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text)}
