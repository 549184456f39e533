"""Simulators of the prompts of ArG's critic. `conf/collect_arg.yaml` names this module, so that llm=oracle finds it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from random import Random

from pipeline.methods.arg.tokens import (
    CLASSES,
    FULLY_REASONABLE,
    FULLY_USEFUL,
    NOT_USEFUL,
    PARTIALLY_REASONABLE,
    UNREASONABLE,
)
from pipeline.methods.rendering import node_name
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.arg_paths import has_arrived, next_relations, sought_tails, tails_leading_on
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.methods.arg import label_relevance, relations_as_oracle, relations_by_similarity
from pipeline.simulation.registry import Simulator, simulates
from pipeline.training.arg.critic import EntityRelevance, Rationality, RelationRelevance, Utility


@simulates(RelationRelevance)
class RelationRelevanceSimulator(Simulator[RelationRelevance]):
    """Labels the offered relations by the gold paths, or by similarity to the question."""

    def write_as_oracle(self, prompt: RelationRelevance, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write the labels of `relations_as_oracle`."""
        return _write_relevance(relations_as_oracle(prompt.segment, gold_context, error_rng))

    def write_by_similarity(self, prompt: RelationRelevance, encoder: LexicalEncoder) -> str:
        """Write the labels of `relations_by_similarity`."""
        return _write_relevance(relations_by_similarity(prompt.segment, encoder))


@simulates(EntityRelevance)
class EntityRelevanceSimulator(Simulator[EntityRelevance]):
    """Labels the shown tails by the gold paths."""

    def write_as_oracle(self, prompt: EntityRelevance, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Label the tails from which gold paths go on, or else the sought ones; as an error, label a wrong tail."""
        relevant = tails_leading_on(prompt.segment, gold_context) or sought_tails(prompt.segment, gold_context)
        if error_rng:
            wrong = [name for name in prompt.judged if name not in relevant]
            relevant = wrong and [error_rng.choice(wrong)]
        return _write_relevance(label_relevance(prompt.judged, relevant))

    def write_by_similarity(self, prompt: EntityRelevance, encoder: LexicalEncoder) -> str:
        """Label all tails fully relevant."""
        return _write_relevance(label_relevance(prompt.judged, prompt.judged))


@simulates(Rationality)
class RationalitySimulator(Simulator[Rationality]):
    """Judges a walk by the gold paths."""

    def write_as_oracle(self, prompt: Rationality, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Call the beginning of a gold path fully reasonable, and any other walk to a sought node partially."""
        on_track = bool(next_relations(prompt.walk, gold_context)) or has_arrived(prompt.walk, gold_context)
        sought = gold_context.is_sought(prompt.walk.end, node_name(prompt.walk.end, prompt.names))
        right = FULLY_REASONABLE if on_track else PARTIALLY_REASONABLE if sought else UNREASONABLE
        others = [label for label in CLASSES["rationality"] if label != right]
        return f"{error_rng.choice(others) if error_rng else right}\njudged"

    def write_by_similarity(self, prompt: Rationality, encoder: LexicalEncoder) -> str:
        """Call every walk fully reasonable."""
        return f"{FULLY_REASONABLE}\njudged"


@simulates(Utility)
class UtilitySimulator(Simulator[Utility]):
    """Judges answers by the gold answers."""

    def write_as_oracle(self, prompt: Utility, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Call gold answers fully useful and others not useful; as an error, the opposite."""
        useful = [answer for answer in prompt.answers if gold_context.is_answer(answer) != (error_rng is not None)]
        return _write_utility(prompt, useful, utility=5 if useful else 1)

    def write_by_similarity(self, prompt: Utility, encoder: LexicalEncoder) -> str:
        """Call every answer fully useful."""
        return _write_utility(prompt, prompt.answers, utility=3)


def _write_relevance(labels: Mapping[str, str]) -> str:
    """Render labels in the form that `Relevance` reads."""
    numbered = enumerate(labels.items(), start=1)
    return "\n".join(f"{number}. {{{name} (Score: {label})}}: judged" for number, (name, label) in numbered)


def _write_utility(prompt: Utility, useful: Collection[str], *, utility: int) -> str:
    """Render labels in the form that `Utility` reads."""
    labels = {answer: FULLY_USEFUL if answer in useful else NOT_USEFUL for answer in prompt.answers}
    return json.dumps({"answers": labels, "utility": f"[Utility:{utility}]"}, ensure_ascii=False)
