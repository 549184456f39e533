"""The simulator of the prompt that `kgqa doctor` asks."""

from __future__ import annotations

from pipeline.engine.doctor.trivial_prompt import CHOICES, TrivialPrompt
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.registry import Simulator, simulates


@simulates(TrivialPrompt)
class TrivialPromptSimulator(Simulator[TrivialPrompt]):
    """Chooses the first choice."""

    def write_as_oracle(self, prompt: TrivialPrompt, gold_context: GoldContext, error_rng: object) -> str:
        return CHOICES[0]

    def write_by_similarity(self, prompt: TrivialPrompt, encoder: LexicalEncoder) -> str:
        return CHOICES[0]
