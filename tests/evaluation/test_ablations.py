"""The ablations: presets that exist, and the papers' differences between them."""

from __future__ import annotations

import pytest

from pipeline.config import compose
from pipeline.evaluation.ablations import ABLATIONS, Ablation, published_effects
from pipeline.evaluation.published import published_figures

ALL = [(method, ablation) for method, ablations in ABLATIONS.items() for ablation in ablations]


@pytest.mark.parametrize(("method", "ablation"), ALL, ids=lambda value: getattr(value, "preset", value))
def test_an_ablation_is_two_presets_of_its_method_that_differ(method: str, ablation: Ablation) -> None:
    base, changed = (compose([f"experiment={preset}"]) for preset in (ablation.base, ablation.preset))
    assert base["choices"]["method"] == changed["choices"]["method"] == method
    assert base["method"] != changed["method"]


@pytest.mark.parametrize("table", ["ablation", "settings", "depth", "width", "token types"])
def test_every_published_row_that_a_preset_runs_is_compared(table: str) -> None:
    compared = {preset for _, ablation in ALL for preset in (ablation.preset, ablation.base)}
    rows = {figure.preset for figure in published_figures() if figure.table == table and figure.preset != "tog"}
    assert rows - {None} <= compared
    assert len(rows) > 1


@pytest.mark.parametrize(
    ("preset", "base", "score", "differences"),
    [
        ("srp_no_reflection", "srp", "compat_readi_hit", [-1.6, -3.2, -2.5]),
        ("arg_no_hypo", "arg", "compat_arg_hit3", [-5.1, -3.1]),
        ("arg_depth_1", "arg", "compat_arg_f1", [-15, -16]),  # beside depth 4, not beside the default row
        ("arg_width_1", "arg", "compat_arg_f1", [5, -1]),
        ("arg_token_utility", "arg_width_1", "compat_arg_hit3", [-5.0]),
        ("parog_prompted_planner", "parog", "compat_tog_em", [-6.1, -5.8, -8.1, -0.8, -2.5, -4.6]),
        ("r3_memory_reflection", "r3", "rouge_l", [-1.5, -16.4, -0.3, -1.6, -1.9, -0.9]),
    ],
)
def test_what_the_papers_print(preset: str, base: str, score: str, differences: list[float]) -> None:
    assert published_effects(Ablation("", preset, base))[score] == pytest.approx(differences)


def test_models_are_not_mixed() -> None:
    """PARoG without refinement is printed for two models, each beside the whole method with the same one."""
    effects = published_effects(Ablation("", "parog_no_refinement", "parog"))
    assert effects == {"compat_tog_em": pytest.approx([-1.3, -3.8, -4.1, -1.5, -1.7, -2.1])}


def test_nothing_is_made_up_where_the_papers_are_silent() -> None:
    assert published_effects(Ablation("", "parog_prior_only", "parog")) == {}
    assert published_effects(Ablation("", "srp", "readi")).keys() == {
        "compat_readi_hit",
        "answer_in_evidence",
        "answer_supported",
    }
