"""What each paper takes away from its method (methods.md §12): which preset against which, and what it prints of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.evaluation.published import Figure, published_figures


@dataclass(frozen=True, slots=True)
class Ablation:
    """Two presets that differ in one part of a method."""

    part: str
    """What is changed, in the words of a table row."""
    preset: str
    """The `experiment=` with the change."""
    base: str
    """The `experiment=` without it."""


def _of(base: str, presets: Mapping[str, str]) -> tuple[Ablation, ...]:
    return tuple(Ablation(part, preset, base) for preset, part in presets.items())


ABLATIONS: Mapping[str, Sequence[Ablation]] = {
    "srp": _of(
        "srp",
        {
            "srp_no_relation_check": "w/o relation check",
            "srp_no_reflection": "w/o self-reflection",
            "srp_no_reference": "w/o reference",
            "srp_random_reference": "random reference",
            "readi": "Readi: structural judge, no references, no relation check",
        },
    ),
    "arg": (
        *_of(
            "arg",
            {
                "arg_no_hypo": "w/o hypo-generator",
                "arg_no_naive_retriever": "w/o naive retriever",
                "arg_top_3": "K = 3",
                "arg_depth_1": "depth 1",
                "arg_depth_2": "depth 2",
                "arg_depth_3": "depth 3",
                "arg_width_1": "width 1",
                "arg_width_5": "width 5",
                "arg_exhaustive": "width exhaustive",
            },
        ),
        *_of(
            "arg_width_1",
            {
                "arg_token_no_relevance": "w/o relevance, width 1",
                "arg_token_no_rationality": "w/o rationality, width 1",
                "arg_token_no_relevance_rationality": "w/o relevance and rationality, width 1",
                "arg_token_no_sequence": "w/o sequence score, width 1",
                "arg_token_no_utility": "w/o utility, width 1",
                "arg_token_utility": "utility alone, width 1",
            },
        ),
    ),
    "parog": _of(
        "parog",
        {
            "parog_no_refinement": "w/o self-refinement",
            "parog_prompted_planner": "prompted planner",
            "parog_no_planner": "w/o planner",
            "parog_prior_only": "prior only",
            "parog_always_refined": "w/o fallback to tentative",
        },
    ),
    "r3": (
        Ablation("w/o adaptive steps", "r3_memory_reflection", "r3"),
        Ablation("w/o memory, without adaptive steps", "r3_reflection", "r3_memory_reflection"),
        Ablation("w/o reflection, without adaptive steps", "r3_memory", "r3_memory_reflection"),
        Ablation("w/o memory, single attempt", "graph_cot", "r3_memory"),
        Ablation("w/o reflection, without memory", "graph_cot", "r3_reflection"),
        Ablation("Graph-CoT: none of the three", "graph_cot", "r3"),
    ),
}
"""By method, in the order in which they are printed."""


def published_effects(ablation: Ablation) -> dict[str, list[float]]:
    """By score of ours that counts alike: what the papers print for the preset less what they print for its base.

    In percentage points, one number for each table, model, dataset and subset that has both.
    """
    effects: dict[str, list[float]] = {}
    for figure in published_figures():
        if figure.preset == ablation.preset and figure.score is not None:
            of_score = effects.setdefault(figure.score, [])
            of_score += [figure.value - base.value for base in _bases(figure, ablation.base)[:1]]
    return {score: differences for score, differences in effects.items() if differences}


def _bases(figure: Figure, preset: str) -> list[Figure]:
    """The figures of the preset in the same column, for the same model where it is told."""
    return [
        other
        for other in published_figures()
        if (other.preset, other.score) == (preset, figure.score)
        and (other.paper, other.table) == (figure.paper, figure.table)
        and (other.dataset, other.subset) == (figure.dataset, figure.subset)
        and figure.model in {None, other.model}
    ]
