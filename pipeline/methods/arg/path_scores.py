"""The scores of a hop, a path and a leaf, with the terms that the settings include (specification §4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.methods.arg.entities import TailJudgement
from pipeline.methods.arg.generation import GeneratedSegment
from pipeline.methods.arg.scores import aggregate, graded_score, sequence, utility
from pipeline.methods.arg.settings import Settings
from pipeline.methods.arg.tokens import Logprobs, ReflectionToken
from pipeline.methods.arg.tree import Expansion


def hop_score(settings: Settings, expansion: Expansion, segment: GeneratedSegment[TailJudgement]) -> float:
    """Return k1 · S_rel · S_rat of a hop. S_rel is that of the relation times that of its best tail."""
    judgement = segment.value
    relevance = rationality = 1.0
    if settings.score.relevance:
        best_tail = max((graded_score(segment.weights(token)) for token in judgement.relevance), default=0.0)
        relevance = expansion.node.relations[expansion.relation] * best_tail
    if settings.score.rationality:
        rationality = graded_score(segment.weights(judgement.rationality))
    return settings.k1 * relevance * rationality


def sequence_score(settings: Settings, logprobs: Logprobs | None) -> float:
    """Return S_seq of a segment."""
    return sequence(logprobs, settings.seq_score) if settings.score.sequence else 0.0


def path_score(settings: Settings, hops: Sequence[float], sequences: Sequence[float], *, is_leaf: bool) -> float:
    """Return the score of a path without its utility.

    Args:
        settings: How scores are combined, and whether S_seq counts at every hop or at the leaf only.
        hops: k1 · S_rel · S_rat of each hop.
        sequences: S_seq of each hop; of a leaf that was made to answer, also that of its answer.
        is_leaf: Whether the path ends here.
    """
    score = aggregate(hops, settings.aggregate)
    if settings.score_at == "every_hop":
        return score + aggregate(sequences, settings.aggregate)
    return score + (sequences[-1] if is_leaf else 0.0)


def utility_score(settings: Settings, segment: GeneratedSegment[Any], level: ReflectionToken | None) -> float:
    """Return k2 · S_uti of a leaf."""
    if not settings.score.utility:
        return 0.0
    worth = "linear" if settings.probabilities == "hard" else settings.utility_weights
    return settings.k2 * utility(segment.weights(level), worth)
