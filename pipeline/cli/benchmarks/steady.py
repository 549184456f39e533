"""A method that makes a fixed number of calls of ordinary length, to measure the engine around it."""

from __future__ import annotations

from dataclasses import dataclass as plain_dataclass
from random import Random
from typing import ClassVar

from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.llm.prompt import Prompt, Sampling, Template
from pipeline.methods.interface import Tools
from pipeline.methods.parsing import brace_answers
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.registry import Simulator, simulates
from pipeline.types import Answer, Prediction, Question

_TEMPLATE = Template(
    system="You answer questions from facts. Think step by step and close with the answer in braces. " * 12,
    user="Facts:\n{{facts}}\nQuestion: {{question}} (step {{step}})",
)


@plain_dataclass(frozen=True)
class Step(Prompt[tuple[str, ...]]):
    """One call of about 350 tokens. No two calls are equal."""

    role: ClassVar[str] = "benchmark.step"
    template = _TEMPLATE
    question: Question
    step: int

    def inputs(self) -> dict[str, str]:
        facts = "\n".join(f"(entity {self.step + n}, relation.number.{n}, entity {n})" for n in range(20))
        return {"facts": facts, "question": self.question.text, "step": str(self.step)}

    def parse(self, text: str) -> tuple[str, ...]:
        return brace_answers(text)

    def fallback(self, text: str) -> tuple[str, ...]:
        return ()


@simulates(Step)
class StepSimulator(Simulator[Step]):
    """Answers a step with the first gold answer."""

    def write_as_oracle(self, prompt: Step, gold_context: GoldContext, error_rng: Random | None) -> str:
        return f"The answer is {{{gold_context.gold.answers[0].name}}}."

    def write_by_similarity(self, prompt: Step, encoder: LexicalEncoder) -> str:
        return "The answer is {unknown}."


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SteadyCalls:
    """Makes `calls` calls one after the other, and answers with the last reply."""

    name: str = "steady-calls"
    calls: PositiveInt = 8

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Make the calls."""
        answers: tuple[str, ...] = ()
        for step in range(self.calls):
            answers = await tools.llm.ask(Step(question, step), Sampling(max_tokens=64))
        return Answer(tuple(map(Prediction, answers)))
