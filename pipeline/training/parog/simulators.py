"""Simulators of the prompts that make PARoG's planning data."""

from __future__ import annotations

import json
from random import Random

from pipeline.methods.parog.plan import Plan
from pipeline.methods.rendering import as_question, one_line
from pipeline.normalisation import normalise
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.methods.parog import write_object
from pipeline.simulation.registry import Simulator, simulates
from pipeline.training.parog.back_translation import BackTranslate, JudgeEquivalent
from pipeline.training.parog.constants import missing_constants
from pipeline.training.parog.verbalise import Polish
from pipeline.types import Question

_MIN_SIMILARITY = 0.5
"""The similarity from which two questions count as equivalent."""


@simulates(Polish)
class PolishSimulator(Simulator[Polish]):
    """Keeps the generated sentences."""

    def write_as_oracle(self, prompt: Polish, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Repeat the sentences; on error, without the last one."""
        return _write_sentences(prompt.plan[:-1] if error_rng else prompt.plan)

    def write_by_similarity(self, prompt: Polish, encoder: LexicalEncoder) -> str:
        """Repeat the sentences."""
        return _write_sentences(prompt.plan)


@simulates(BackTranslate)
class BackTranslateSimulator(Simulator[BackTranslate]):
    """Translates a plan back into the original question."""

    def write_as_oracle(self, prompt: BackTranslate, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write the original question with all constants; on error, another question."""
        if error_rng is None:
            return _with_constants(gold_context.question, prompt.constants)
        about = error_rng.choice(prompt.constants) if len(prompt.constants) > 1 else "it"
        return f"what has nothing to do with {about}?"

    def write_by_similarity(self, prompt: BackTranslate, encoder: LexicalEncoder) -> str:
        """List the sentences of the plan."""
        return f"what comes of this: {'; '.join(one_line(subgoal.goal) for subgoal in prompt.plan)}?"


@simulates(JudgeEquivalent)
class JudgeEquivalentSimulator(Simulator[JudgeEquivalent]):
    """Compares the two questions as texts."""

    def write_as_oracle(self, prompt: JudgeEquivalent, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Confirm the question that the oracle itself writes as back-translation; on error, say the opposite."""
        expected = _with_constants(gold_context.question, prompt.constants)
        is_same = normalise(prompt.translated) == normalise(expected)
        return write_object(equivalent=is_same != bool(error_rng))

    def write_by_similarity(self, prompt: JudgeEquivalent, encoder: LexicalEncoder) -> str:
        """Confirm a question of similar words."""
        (similarity,) = encoder.similarities(prompt.question.text, [prompt.translated])
        return write_object(equivalent=bool(similarity >= _MIN_SIMILARITY))


def _with_constants(question: Question, constants: tuple[str, ...]) -> str:
    """Return a question, with the constants that only its gold query names in brackets."""
    text = as_question(question.text)
    missing = missing_constants(text, constants)
    return f"{text[:-1].rstrip()} ({'; '.join(map(one_line, missing))})?" if missing else text


def _write_sentences(plan: Plan) -> str:
    return json.dumps([subgoal.goal for subgoal in plan], ensure_ascii=False)
