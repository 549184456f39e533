"""Reading and pairing configurations of finished runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from pipeline.analysis.paired import pair_scores, read_configurations, read_rows
from pipeline.traces.folder import RunFolder
from tests.analysis.test_rerun_variance import Rows, run

ONE: Rows = {"q1": (1.0, {}), "q0": (0.0, {})}
TWO: Rows = {"q0": (1.0, {}), "q2": (1.0, {})}


def test_a_configuration_is_named_by_its_number_and_with_several_runs_by_run_and_number(tmp_path: Path) -> None:
    for name in ("a", "b", "sub/a"):
        run(tmp_path / name, ONE, TWO)
    a, b, other = tmp_path / "a", tmp_path / "b", tmp_path / "sub" / "a"
    assert [each.name for each in read_configurations([a], "f1")] == ["0", "1"]
    assert [each.name for each in read_configurations([a, b, a], "f1")] == ["a:0", "a:1", "b:0", "b:1"]
    assert [each.name for each in read_configurations([a, other], "f1")] == [
        f"{folder}:{number}" for folder in (a, other) for number in (0, 1)
    ]


def test_pairs_are_the_questions_that_both_score_sorted_by_id(tmp_path: Path) -> None:
    run(tmp_path / "run", ONE, TWO)
    rows = read_rows(RunFolder(tmp_path / "run"), ["hits_at_1"])
    assert pair_scores(rows[0], rows[1], "hits_at_1").rows() == [("q0", 0.0, 1.0)]
    assert pair_scores(rows[0], rows[0], "hits_at_1").rows() == [("q0", 0.0, 0.0), ("q1", 1.0, 1.0)]


def test_rows_can_be_limited_to_some_questions(tmp_path: Path) -> None:
    run(tmp_path / "run", ONE, TWO)
    rows = read_rows(RunFolder(tmp_path / "run"), ["question"], questions={"q2"})
    assert {number: part.rows() for number, part in rows.items()} == {1: [("q2", "q2?")]}


def test_the_share_of_questions_at_a_limit_is_of_those_compared(tmp_path: Path) -> None:
    (read, *_) = run(tmp_path / "run", {f"q{number}": (1.0, {}) for number in range(4)})
    base = replace(read, rows=read.rows.with_columns(at_limit=pl.Series([1, 1, 0, 0])))
    assert base.rows["question_id"].to_list() == ["q0", "q1", "q2", "q3"]
    asked = [["q0", "q1", "q2", "q3"], ["q1", "q2", "q9"], ["q3"], ["q9"]]
    assert [base.limited_share(pl.Series(each)) for each in asked] == [0.5, 0.5, 0, 0]


def test_a_configuration_without_finished_questions_is_left_out(tmp_path: Path) -> None:
    assert [each.name for each in run(tmp_path / "run", ONE, {}, TWO)] == ["0", "2"]
