"""The model alone: chain of thought without a graph (methods.md §6.13)."""

from __future__ import annotations

from dataclasses import dataclass as plain_dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted
from pipeline.llm.prompt import Sampling
from pipeline.methods.answering import UNKNOWN, Answers, AnswerWithoutFacts, write_answers
from pipeline.methods.concluding import majority
from pipeline.methods.concurrency import concurrently
from pipeline.methods.port import Tools
from pipeline.types import Answer, Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class CoT:
    """One call: worked examples, the question, step-by-step reasoning, the answer in braces."""

    name: str = "cot"
    samples: PositiveInt = 1
    """More than one is self-consistency: the answers that most samples give."""
    temperature: NonNegativeFloat = 0.0
    max_tokens: PositiveInt = 2048
    parse_retries: NonNegativeInt = 2

    @model_validator(mode="after")
    def _check(self) -> CoT:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError("samples > 1 needs temperature > 0, or every sample is the same")
        return self

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Draw the samples and return what most of them say. Only the first is drawn when a cap has been hit."""
        drawn = await concurrently(self._draw(question, tools, last=place == 0) for place in range(self.samples))
        samples = [sample for sample in drawn if sample is not None]
        predictions = majority(samples)
        voters = (sample for sample in samples if predictions and predictions[0].text in sample.texts)
        tools.record("answered", answers=[prediction.text for prediction in predictions], samples=len(samples))
        return Answer(
            predictions=predictions,
            raw=next(voters, samples[0]).raw,
            status="ok" if len(samples) == self.samples else "budget_exhausted",
        )

    async def _draw(self, question: Question, tools: Tools, *, last: bool) -> Answers | None:
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens)
        try:
            return await tools.llm.ask(AnswerAlone(question), sampling, retries=self.parse_retries, last=last)
        except BudgetExhausted:
            return None


@plain_dataclass(frozen=True)
class AnswerAlone(AnswerWithoutFacts):
    """The question to the model alone."""

    role: ClassVar[str] = "cot.answer"

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """Gold, for a perfect model knows it; a slip names something of the question instead."""
        if slip:
            mentioned = [entity.name for entity in self.question.topic_entities if not truth.is_answer(entity.name)]
            return write_answers([slip.choice([*mentioned, UNKNOWN])])
        return write_answers([answer.name for answer in truth.gold.answers] or [UNKNOWN])
