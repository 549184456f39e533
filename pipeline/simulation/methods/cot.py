"""The simulator of CoT's prompt."""

from __future__ import annotations

from random import Random

from pipeline.methods.answering import AnswerWithoutFacts
from pipeline.methods.cot import AnswerAlone
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.methods.answering import UNKNOWN, AnswerWithoutFactsSimulator, write_answers
from pipeline.simulation.registry import simulates


@simulates(AnswerAlone)
class AnswerAloneSimulator(AnswerWithoutFactsSimulator):
    """Knows the gold answers: CoT is the model alone, so a perfect model must know them."""

    def write_as_oracle(self, prompt: AnswerWithoutFacts, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write the gold answers; as an error, a topic entity."""
        if error_rng:
            mentioned = [
                entity.name for entity in prompt.question.topic_entities if not gold_context.is_answer(entity.name)
            ]
            return write_answers([error_rng.choice([*mentioned, UNKNOWN])])
        return write_answers([answer.name for answer in gold_context.gold.answers] or [UNKNOWN])
