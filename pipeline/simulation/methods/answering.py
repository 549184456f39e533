"""Simulators of the answering prompts that several methods share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from pipeline.methods.answering import AnswerFromFacts, AnswerWithoutFacts
from pipeline.methods.parsing import QUOTES
from pipeline.methods.rendering import names_of, quoted
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.gold_paths import answer_hops, answers_shown
from pipeline.simulation.registry import Simulator, simulates
from pipeline.simulation.similarity import ends_of_most_similar_path
from pipeline.types import Node

UNKNOWN = "unknown"
"""The answer of a simulated model that knows none."""

_SYNTAX = f"{{}};|{QUOTES}\\\n"
"""Characters that an answer cannot contain outside double quotes."""


def write_answers(texts: Iterable[str]) -> str:
    """Write answers in the form that `AnswerPrompt` parses."""
    written = (quoted(text) if any(mark in text for mark in _SYNTAX) else text for text in texts)
    return f"I put together what is known. So the answer is {{{'; '.join(written)}}}."


def write_yes(answers: Iterable[str]) -> str:
    """Write that the facts are enough, with the answers."""
    return f"{{Yes}} {write_answers(answers)}"


def right_or_wrong(shown: Mapping[Node, str], gold_context: GoldContext, error_rng: Random | None) -> list[str]:
    """Return the gold answers among nodes with their names. If there are none, or as an error, return another node."""
    right = answers_shown(shown, gold_context)
    wrong = [text for text in shown.values() if text not in right] or [UNKNOWN]
    return [error_rng.choice(wrong)] if error_rng else right or wrong[:1]


@simulates(AnswerFromFacts)
class AnswerFromFactsSimulator(Simulator[AnswerFromFacts]):
    """Answers with nodes of the facts that the prompt shows."""

    def write_as_oracle(self, prompt: AnswerFromFacts, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write the gold answers among the facts. If there are none, or as an error, write another node."""
        possible = (node for chain in prompt.chains for node in answer_hops(chain, gold_context).values())
        if error_rng is None and (right := answers_shown(names_of(possible, prompt.names), gold_context)):
            return write_answers(right)
        shown = names_of((node for chain in prompt.chains for node in chain.nodes[1:]), prompt.names)
        return write_answers(right_or_wrong(shown, gold_context, error_rng))

    def write_by_similarity(self, prompt: AnswerFromFacts, encoder: LexicalEncoder) -> str:
        """Write the last nodes of the relation path that is most similar to the question."""
        ends = ends_of_most_similar_path(prompt.chains, prompt.names, prompt.question.text, encoder)
        return write_answers(ends or [UNKNOWN])


@simulates(AnswerWithoutFacts)
class AnswerWithoutFactsSimulator(Simulator[AnswerWithoutFacts]):
    """Does not know the answer, so that a search that found nothing never counts as a success."""

    def write_as_oracle(self, prompt: AnswerWithoutFacts, gold_context: GoldContext, error_rng: Random | None) -> str:
        return write_answers([UNKNOWN])

    def write_by_similarity(self, prompt: AnswerWithoutFacts, encoder: LexicalEncoder) -> str:
        return write_answers([UNKNOWN])
