"""Simulators of ToG's prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from pipeline.methods.rendering import names_of, node_name, quoted
from pipeline.methods.tog.entities import EntityScores
from pipeline.methods.tog.reason import Enough
from pipeline.methods.tog.relations import RelationScores, print_relation
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.gold_paths import answer_hops, next_gold_relations, sufficient_answers
from pipeline.simulation.methods.answering import write_yes
from pipeline.simulation.registry import Simulator, simulates
from pipeline.simulation.similarity import ends_of_most_similar_path, rank_relations
from pipeline.types import Relation

_MAX_PICKED = 5
"""The largest number of relations that a simulated model picks without gold paths."""

_NO = "{No} What is asked for does not stand in these facts."


@simulates(RelationScores)
class RelationScoresSimulator(Simulator[RelationScores]):
    """Follows gold paths."""

    def write_as_oracle(self, prompt: RelationScores, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write the next relations of gold paths, else some with equal scores. With `error_rng`: other relations."""
        good = next_gold_relations(prompt.chain, gold_context)
        right = [relation for relation in good if relation in prompt.relations]
        wrong = [relation for relation in prompt.relations if relation not in good]
        if error_rng and wrong:
            return _write_relations(dict.fromkeys(error_rng.sample(wrong, min(len(wrong), _MAX_PICKED)), 1.0))
        if right:
            return _write_relations({relation: float(len(right) - rank) for rank, relation in enumerate(right)})
        return _write_relations(dict.fromkeys(prompt.relations[:_MAX_PICKED], 1.0))

    def write_by_similarity(self, prompt: RelationScores, encoder: LexicalEncoder) -> str:
        ranking = rank_relations([relation.name for relation in prompt.relations], prompt.question.text, encoder)
        best = sorted(prompt.relations, key=lambda relation: ranking.index(relation.name))[:_MAX_PICKED]
        return _write_relations({relation: float(len(best) - rank) for rank, relation in enumerate(best)})


@simulates(EntityScores)
class EntityScoresSimulator(Simulator[EntityScores]):
    """Recognises gold answers and the nodes on the way to them."""

    def write_as_oracle(self, prompt: EntityScores, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Score only gold answers, else nodes on the way to them, else all equally. With `error_rng`: another node."""
        reached = [prompt.chain.then(prompt.relation, node) for node in prompt.candidates]
        sought = [
            chain.length in answer_hops(chain, gold_context)
            and gold_context.is_sought(chain.end, node_name(chain.end, prompt.names))
            for chain in reached
        ]
        good = sought if any(sought) else [node in gold_context.waypoints for node in prompt.candidates]
        if error_rng:
            wrong = [index for index, right in enumerate(good) if not right] or range(len(good))
            chosen = error_rng.choice(wrong)
            return _write_scores([float(index == chosen) for index in range(len(good))])
        return _write_scores([float(right) for right in good] if any(good) else [1.0] * len(good))

    def write_by_similarity(self, prompt: EntityScores, encoder: LexicalEncoder) -> str:
        names = [node_name(node, prompt.names) or "" for node in prompt.candidates]
        similarities = encoder.similarities(prompt.question.text, names)
        return _write_scores([max(similarity, 0.0) + 0.01 for similarity in similarities])


@simulates(Enough)
class EnoughSimulator(Simulator[Enough]):
    """Recognises gold answers in the chains."""

    def write_as_oracle(self, prompt: Enough, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write Yes with the gold answers that the chains show, else No. A count needs all nodes to be counted.

        With `error_rng`, write No, or Yes with another node if the chains show no gold answer.
        """
        nodes = (node for chain in prompt.chains for node in answer_hops(chain, gold_context).values())
        shown = names_of(nodes, prompt.names)
        answers = sufficient_answers(shown, gold_context, error_rng)
        return write_yes(answers) if answers else _NO

    def write_by_similarity(self, prompt: Enough, encoder: LexicalEncoder) -> str:
        """Write Yes with the last nodes of the most similar path, or No when they are unnamed."""
        ends = ends_of_most_similar_path(prompt.chains, prompt.names, prompt.question.text, encoder)
        return write_yes(ends) if ends else _NO


def _write_relations(weights: Mapping[Relation, float]) -> str:
    total = sum(weights.values())
    return "\n".join(
        f"({quoted(print_relation(relation))}, {weight / total:.3f}): chosen" for relation, weight in weights.items()
    )


def _write_scores(weights: Sequence[float]) -> str:
    total = sum(weights)
    return "\n".join(f"{number}. {weight / total:.3f}" for number, weight in enumerate(weights, start=1))
