"""Effects of ablations, measured and published."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.evaluation.statistics import Difference
from pipeline.export.table_files import write_tables
from pipeline.papers.ablation_effects import Effect, effect_columns, effect_table, published_effects
from pipeline.papers.ablations import Ablation
from tests.evaluation.test_score_tables import printed, summary


def effect(low: float, high: float, published: tuple[float, ...]) -> Effect:
    difference = Difference(mean=(low + high) / 2, low=low, high=high, p_value=0.5)
    part = Ablation("w/o part", "x", "y")
    return Effect(part, "f1", 70, 0.5, 0.5 + difference.mean, difference, None, 0.95, published)


@pytest.mark.parametrize(
    ("low", "high", "published", "verdict"),
    [
        (-0.04, -0.01, (-1.0, -3.0), "as published"),
        (0.01, 0.04, (-1.0, -3.0), "opposite sign"),
        (-0.04, 0.01, (-1.0,), "not significant"),
        (0.0, 0.0, (-1.0,), "not significant"),
        (-0.04, -0.01, (), "significant"),
        (0.01, 0.04, (5.0, -1.0), "both signs published"),
        (-0.04, -0.01, (0.0, -1.0), "as published"),
    ],
)
def test_verdicts(low: float, high: float, published: tuple[float, ...], verdict: str) -> None:
    assert effect(low, high, published).verdict == verdict


def test_the_exact_test_decides_for_scores_of_0_and_1() -> None:
    """Five questions of a hundred lost and none won: the interval leaves out zero, and p is 1/16."""
    lost = effect(-0.1, -0.01, (-1.0,))
    assert lost.verdict == "as published"
    assert replace(lost, exact_p=0.0625).verdict == "not significant"
    assert replace(lost, exact_p=0.031).verdict == "as published"


def test_a_score_has_the_heading_of_other_tables() -> None:
    """The name of its column would be broken within a word in 80 columns."""
    shown = replace(effect(0, 0, ()), score="supported_readi_hit")
    first = summary(counters={"llm_calls": 10})
    text = printed(effect_table([shown], [first], {"x": 0, "y": 0}), width=80)
    assert "supporte" not in text
    assert all(word in text for word in ["hits", "in", "evidence"])


def test_an_interval_of_width_0_is_not_printed() -> None:
    """No question differs, and every resample is alike: it would claim too much."""
    text = printed(effect_table([effect(0.0, 0.0, ())], [summary(counters={"llm_calls": 10})], {"x": 0, "y": 0}))
    assert "+0.0" in text
    assert "…+0.0" not in text


def test_a_file_has_one_value_in_each_cell(tmp_path: Path) -> None:
    shown = [effect(-0.04, -0.01, (-1.0, -3.0)), effect(-0.5, 0.25, ())]
    summaries = [summary(number=number, counters={"llm_calls": 10 + number}) for number in (0, 1)]
    table = effect_columns(shown, summaries, {"y": 0, "x": 1})
    write_tables([table], str(tmp_path / "effects.csv"))
    with open(tmp_path / "effects.csv", encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    questions = summaries[0].questions
    assert first == {
        "ablation": "w/o part",
        "score": "F1",
        "questions": "70",
        "# with": "0",
        "# without": "1",
        "with": "50.0",
        "without": "47.5",
        "difference": "-2.5",
        "difference low": "-4.0",
        "difference high": "-1.0",
        "published low": "-3.0",
        "published high": "-1.0",
        "verdict": "as published",
        "calls with": f"{10 / questions:.1f}",
        "calls without": f"{11 / questions:.1f}",
    }
    assert (second["published low"], second["published high"], second["difference high"]) == ("", "", "25.0")


@pytest.mark.parametrize(("asked", "said"), [(100, True), (70, False)])
def test_a_score_of_fewer_questions_names_their_number(asked: int, said: bool) -> None:
    summaries = [summary(number=number, questions=asked, counters={"llm_calls": 10}) for number in (0, 1)]
    text = printed(effect_table([effect(-0.04, -0.01, ())], summaries, {"y": 0, "x": 1}), width=100)
    assert ("70 questions" in text.replace("on webqsp, 70 questions", "")) is said


@pytest.mark.parametrize(
    ("preset", "base", "score", "differences"),
    [
        ("srp_no_reflection", "srp", "compat_readi_hit", [-1.6, -3.2, -2.5]),
        ("arg_no_hypo", "arg", "compat_arg_hit3", [-5.1, -3.1]),
        ("arg_depth_1", "arg_depth_4", "compat_arg_f1", [-15, -16]),  # against depth 4, not against the default row
        ("arg_width_1", "arg", "compat_arg_f1", [5, -1]),
        ("arg_token_utility", "arg_width_1", "compat_arg_hit3", [-5.0]),
        ("parog_prompted_planner", "parog", "compat_tog_em", [-6.1, -5.8, -8.1, -0.8, -2.5, -4.6]),
        ("r3_memory_reflection", "r3", "rouge_l", [-1.5, -16.4, -0.3, -1.6, -1.9, -0.9]),
    ],
)
def test_published_differences(preset: str, base: str, score: str, differences: list[float]) -> None:
    assert published_effects(Ablation("", preset, base))[score] == pytest.approx(differences)


def test_each_published_difference_is_of_one_model() -> None:
    """PARoG without refinement is published for two models, each with the full method's result."""
    effects = published_effects(Ablation("", "parog_no_refinement", "parog"))
    assert effects == {"compat_tog_em": pytest.approx([-1.3, -3.8, -4.1, -1.5, -1.7, -2.1])}


def test_an_ablation_that_no_paper_publishes_has_no_published_effect() -> None:
    assert published_effects(Ablation("", "parog_prior_only", "parog")) == {}
    assert published_effects(Ablation("", "srp", "readi")).keys() == {
        "compat_readi_hit",
        "answer_in_evidence",
        "supported_readi_hit",
    }
