"""CoT: chain of thought by the model alone, without a graph (specification §6.13)."""

from __future__ import annotations

from dataclasses import dataclass as plain_dataclass
from typing import ClassVar

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted
from pipeline.llm.prompt import Sampling
from pipeline.methods.answer_linking import majority
from pipeline.methods.answering import Answers, AnswerWithoutFacts
from pipeline.methods.concurrency import concurrently
from pipeline.methods.interface import Caps, Tools
from pipeline.types import Answer, Question


@plain_dataclass(frozen=True)
class AnswerAlone(AnswerWithoutFacts):
    """The question to the model alone."""

    role: ClassVar[str] = "cot.answer"


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class CoT:
    """One call: worked examples, the question, step-by-step reasoning, the answer in braces.

    The keys are described in `conf/method/cot.yaml`.
    """

    prompts: ClassVar = (AnswerAlone,)
    uses_graph: ClassVar[bool] = False
    name: str
    samples: PositiveInt
    """More than one is self-consistency: the answers that most samples give."""
    temperature: NonNegativeFloat
    max_tokens: PositiveInt
    parse_retries: NonNegativeInt

    @model_validator(mode="after")
    def _check(self) -> CoT:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError("samples > 1 needs temperature > 0: at temperature 0 all samples are equal")
        return self

    def most_llm_calls(self, question: Question, caps: Caps) -> int:
        """Return how many samples are drawn, each with all retries."""
        return self.samples * (1 + self.parse_retries)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Draw the samples and return the majority's answers. At a limit of the budget, only the first one."""
        drawn = await concurrently(self._draw(question, tools, last=index == 0) for index in range(self.samples))
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
        """Draw one sample. Return None when a limit of the budget was met."""
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens)
        try:
            return await tools.llm.ask(AnswerAlone(question), sampling, retries=self.parse_retries, last=last)
        except BudgetExhausted:
            return None
