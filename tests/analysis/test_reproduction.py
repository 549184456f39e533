"""Which points the papers' tables need, and what is said of a figure that none can be run for."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline.analysis.reproduction import Reproduced, cells, rows_of
from pipeline.evaluation.published import Figure, published_figures
from pipeline.evaluation.statistics import Estimate

DATASETS = {"webqsp": ("dataset=webqsp",), "cwq": None, "grailqa": ("dataset=grailqa",), "grbench_amazon": ("a=b",)}
ROWS = rows_of(DATASETS, (0, 1), ("llm=oracle",))


def row(**wanted: object) -> object:
    found = [each for each in ROWS if all(getattr(each.figure, name) == value for name, value in wanted.items())]
    return found[0]


def test_every_published_figure_has_its_row() -> None:
    assert [each.figure for each in ROWS] == list(published_figures())


def test_a_row_is_its_preset_on_its_dataset_once_per_seed() -> None:
    found = row(paper="SRP", table="ablation", variant="w/o reference", dataset="webqsp")
    words = ("dataset=webqsp", "experiment=srp_no_reference", "llm=oracle")  # the user's own words win
    assert found.points == ((*words, "run.seed=0"), (*words, "run.seed=1"))  # type: ignore[attr-defined]


def test_arg_has_two_hops_on_webqsp_but_where_depth_is_the_question() -> None:
    for table, variant, depth in (("settings", "K = 3", True), ("width", "width 5", True), ("depth", "depth 3", False)):
        found = row(paper="ArG", table=table, variant=variant, dataset="webqsp")
        assert ("method.depth=2" in found.points[0]) is depth  # type: ignore[attr-defined]
    assert "method.depth=2" not in row(paper="ArG", table="settings", method="ToG", dataset="webqsp").points[0]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wanted", "because"),
    [
        ({"method": "TransferNet"}, "not ours to run"),
        ({"method": "SRP", "dataset": "cwq"}, "no dataset"),
        ({"table": "efficiency", "subset": "amazon"}, "no score of ours"),
        ({"method": "R3-Cycle", "subset": "goodreads", "table": "main"}, "no dataset"),
    ],
)
def test_what_cannot_be_run_says_why(wanted: dict[str, object], because: str) -> None:
    found = row(**wanted)
    assert (found.points, found.because) == ((), because)  # type: ignore[attr-defined]


def figure(**changed: object) -> Figure:
    found = next(each for each in published_figures() if each.method == "SRP")
    return dataclasses.replace(found, **changed)  # type: ignore[arg-type]


def test_a_stand_in_has_no_gap_and_is_called_one() -> None:
    estimate = Estimate(80.0, 75.0, 84.0, 100)
    line = Reproduced(figure(), estimate, estimate, "", stood_in=True)
    assert line.gap is None
    assert "(ours: a stand-in)" in cells(line)[1]


def test_the_gap_is_ours_less_theirs() -> None:
    ours = Estimate(80.0, 75.0, 84.0, 100)
    line = Reproduced(figure(value=78.6), ours, Estimate(70.0, 65.0, 75.0, 100), "")
    assert line.gap == pytest.approx(1.4)
    assert cells(line)[-4:] == ("78.6", "80.0 [75.0, 84.0]", "70.0 [65.0, 75.0]", "+1.4")


def test_a_figure_without_ours_has_no_gap_but_a_reason() -> None:
    line = Reproduced(figure(), None, None, "no dataset")
    assert line.gap is None
    assert cells(line)[-3:] == ("no dataset", "–", "–")
