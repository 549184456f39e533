"""What an ablation does: paired by question, and set against what is published."""

from __future__ import annotations

import pytest

from pipeline.analysis.ablations import Effect
from pipeline.evaluation.ablations import Ablation
from pipeline.evaluation.statistics import Difference


def effect(low: float, high: float, published: tuple[float, ...]) -> Effect:
    difference = Difference(mean=(low + high) / 2, low=low, high=high, p_value=0.5)
    return Effect(Ablation("w/o part", "x", "y"), "f1", 0.5, 0.5 + difference.mean, difference, published)


@pytest.mark.parametrize(
    ("low", "high", "published", "verdict"),
    [
        (-0.04, -0.01, (-1.0, -3.0), "as published"),
        (0.01, 0.04, (-1.0, -3.0), "the other way"),
        (-0.04, 0.01, (-1.0,), "none shown"),
        (0.0, 0.0, (-1.0,), "none shown"),
        (-0.04, -0.01, (), "shown"),
        (0.01, 0.04, (5.0, -1.0), "published both ways"),
        (-0.04, -0.01, (0.0, -1.0), "as published"),
    ],
)
def test_verdicts(low: float, high: float, published: tuple[float, ...], verdict: str) -> None:
    assert effect(low, high, published).verdict == verdict
