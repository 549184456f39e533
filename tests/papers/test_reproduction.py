"""Planning and comparing the figures of the papers' tables."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from pipeline import config
from pipeline.evaluation.statistics import Estimate
from pipeline.papers.published import Figure, published_figures
from pipeline.papers.reproduction import (
    PlannedFigure,
    ReproducedFigure,
    by_table,
    cells,
    count_line,
    interval_text,
    plan_figures,
    summary_table,
    unit_text,
)

DATASETS = {"webqsp": ("dataset=webqsp",), "cwq": None, "grailqa": ("dataset=grailqa",), "grbench_amazon": ("a=b",)}
ROWS = plan_figures(DATASETS, (0, 1), ("llm=oracle",))


def planned(**wanted: object) -> PlannedFigure:
    found = [each for each in ROWS if all(getattr(each.figure, name) == value for name, value in wanted.items())]
    return found[0]


def test_every_published_figure_is_planned() -> None:
    assert [each.figure for each in ROWS] == list(published_figures())


def test_a_figure_is_its_preset_on_its_dataset_once_per_seed() -> None:
    found = planned(paper="SRP", table="ablation", variant="w/o reference", dataset="webqsp")
    words = ("dataset=webqsp", "experiment=srp_no_reference", "llm=oracle")  # the user's own overrides take precedence
    assert found.configurations == ((*words, "run.seed=0"), (*words, "run.seed=1"))


def test_rows_are_run_with_as_many_seeds_as_in_the_paper() -> None:
    by_default = plan_figures(DATASETS, None, ())
    runs = {(each.figure.paper, len(each.configurations)) for each in by_default if each.configurations}
    assert runs == {("PARoG", 3), ("PoG", 1), ("RoG", 1), ("SRP", 1), ("ArG", 1), ("R3-Cycle", 1)}


def test_arg_has_the_depth_of_the_dataset_except_in_the_depth_table() -> None:
    for table, variant, depth in (("settings", "K = 3", 2), ("width", "width 5", 2), ("depth", "depth 4", 4)):
        words = planned(paper="ArG", table=table, variant=variant, dataset="webqsp").configurations[0]
        assert config.compose([*words, "dataset.path=x"])["method"]["max_hops"] == depth
    on_cwq = config.compose(["dataset=cwq", "dataset.path=x", "experiment=arg_width_1"])
    assert on_cwq["method"]["max_hops"] == 4


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"method": "TransferNet"}, "a trained network of its own"),
        ({"method": "SRP", "dataset": "cwq"}, "no dataset"),
        ({"table": "efficiency", "subset": "amazon", "metric": "CPU %"}, "of the whole run, at the top"),
        ({"table": "efficiency", "subset": "amazon", "metric": "seconds"}, "in the table of efficiency"),
        ({"method": "R3-Cycle", "subset": "goodreads", "table": "main"}, "no dataset"),
    ],
)
def test_a_figure_that_cannot_be_run_has_a_reason(wanted: dict[str, object], reason: str) -> None:
    found = planned(**wanted)
    assert (found.configurations, found.reason) == ((), reason)


def figure(**changed: object) -> Figure:
    found = next(each for each in published_figures() if each.method == "SRP")
    return dataclasses.replace(found, **changed)  # type: ignore[arg-type]


def test_another_dataset_has_no_gap_and_is_marked() -> None:
    estimate = Estimate(80.0, 75.0, 84.0, 100)
    line = ReproducedFigure(figure(), estimate, estimate, "", substituted=True)
    assert line.gap is None
    assert "(run on another dataset)" in cells(line)[1]


def test_the_gap_is_our_score_minus_the_papers() -> None:
    ours = Estimate(80.0, 75.0, 84.0, 100)
    line = ReproducedFigure(figure(value=78.6), ours, Estimate(70.0, 65.0, 75.0, 100), "")
    assert line.gap == pytest.approx(1.4)
    assert cells(line)[-4:] == ("78.6", "70.0 65.0–75.0", "80.0 75.0–84.0", "+1.4")


@pytest.mark.parametrize(("high", "said"), [(120.0, True), (90.0, False)])
def test_an_f1_above_100_is_explained(high: float, said: bool) -> None:
    measured = Estimate(80.0, 70.0, high, 100)
    assert (
        "can exceed 100" in unit_text([ReproducedFigure(figure(score="compat_rog_f1"), measured, None, "")])
    ) is said
    assert unit_text([ReproducedFigure(figure(score="f1"), measured, None, "")]) == "percent"


def test_a_figure_without_our_score_has_no_gap_but_a_reason() -> None:
    line = ReproducedFigure(figure(), None, None, "no dataset")
    assert line.gap is None
    assert cells(line)[-3:] == ("–", "no dataset", "–")


def test_the_summary_has_a_line_for_each_papers_method_and_whole_dataset() -> None:
    estimate = Estimate(80.0, 75.0, 84.0, 100)
    lines = [ReproducedFigure(each.figure, estimate, estimate, "") for each in ROWS]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(summary_table(lines, "a language model"))
    text = console.export_text()
    assert len(text.splitlines()) <= 23
    srp = [line.split() for line in text.splitlines() if line.startswith(" SRP ")]
    assert [cells[1] for cells in srp] == ["webqsp", "cwq", "grailqa"]
    assert srp[0][2:] == ["Hits@1", "78.6–83.6", *("80.0", "75.0–84.0") * 2]
    assert text.count(" R3 self-judged ") == 3
    assert text.count(" R3 oracle ") == 3


def test_an_interval_over_seeds_is_marked_and_the_table_says_what_the_others_are_over() -> None:
    estimate = Estimate(50.0, 40.0, 60.0, 3)
    single = ReproducedFigure(figure(), estimate, estimate, "", seeds=1)
    seeds = dataclasses.replace(single, seeds=3)
    assert cells(seeds)[-3:-1] == ("50.0 40.0–60.0*", "50.0 40.0–60.0*")
    assert cells(single)[-3:-1] == ("50.0 40.0–60.0", "50.0 40.0–60.0")
    assert (seeds.to_dict()["interval_over"], single.to_dict()["interval_over"]) == ("seeds", "questions")
    over_seeds = "with intervals; * over the means of 3 seeds, the same questions in each"
    assert interval_text([single, seeds]) == f"{over_seeds}; all others are over questions"
    assert interval_text([seeds]) == over_seeds
    assert interval_text([single]) == "with intervals over questions"
    same = Estimate(50.0, 50.0, 50.0, 3)
    equal = dataclasses.replace(seeds, measured=same, strict=same)
    assert cells(equal)[-3:-1] == ("50.0*", "50.0*")
    alone = "with intervals; * over the means of 3 seeds, and none where these are equal, the same questions in each"
    assert interval_text([equal]) == alone
    stream = io.StringIO()
    Console(file=stream, width=80).print(summary_table([seeds], "oracle"))
    assert over_seeds in " ".join(stream.getvalue().split())


def test_figures_that_were_not_measured_are_counted_by_reason() -> None:
    lines = [ReproducedFigure(figure(), None, None, reason) for reason in ("", "no preset", "no preset", "no dataset")]
    assert count_line(lines) == "4 rows of published figures: 1 measured; 2 not: no preset; 1 not: no dataset"


def test_every_table_names_its_retrievers_and_a_row_says_where_it_is_not_as_published() -> None:
    estimate = Estimate(50.0, 40.0, 60.0, 100)
    departures = ("other retriever than published", "no references")
    dense = ReproducedFigure(figure(), estimate, estimate, "", retriever="dense")
    lexical = dataclasses.replace(dense, retriever="lexical", departures=departures)
    assert cells(lexical)[0] == f"{cells(dense)[0]} [{', '.join(departures)}]"
    ((title, _),) = by_table([dense, lexical], "oracle")
    assert title.endswith("(answered by oracle), retriever: dense; lexical")
    entry = lexical.to_dict()
    assert (entry["retriever"], entry["departures"]) == ("lexical", list(departures))
    stream = io.StringIO()
    lines = [dataclasses.replace(each, retriever="lexical", departures=departures[:1]) for each in (dense, lexical)]
    Console(file=stream, width=80).print(summary_table(lines, "oracle"))
    assert f"not as published: {departures[0]}" in " ".join(stream.getvalue().split())


def test_a_main_result_without_the_papers_score_has_the_reason() -> None:
    line = ReproducedFigure(figure(), None, Estimate(50.0, 40.0, 60.0, 100), "no question has rouge_l")
    stream = io.StringIO()
    Console(file=stream, width=120).print(summary_table([line], "oracle"))
    assert "no question has rouge_l" in " ".join(stream.getvalue().split())
