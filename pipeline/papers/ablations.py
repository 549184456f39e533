"""Lists the ablations of each method: pairs of presets in `conf/experiment/` to compare (specification §12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ablation:
    """Two presets that differ in one part of a method."""

    part: str
    """The change, as a table row names it."""
    preset: str
    """The preset with the change: `conf/experiment/PRESET.yaml`."""
    base: str
    """The preset without the change."""


def _against(base: str, presets: Mapping[str, str]) -> tuple[Ablation, ...]:
    """Compare each preset, given with its part, with one base."""
    return tuple(Ablation(part, preset, base) for preset, part in presets.items())


ABLATIONS: Mapping[str, Sequence[Ablation]] = {
    "srp": _against(
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
        *_against(
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
        *_against(
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
    "parog": _against(
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
"""By method, in the order of the table that `kgqa ablations` prints."""
