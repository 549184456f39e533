"""Points as they are named and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.analysis.pairs import pair_scores, read_points, read_run_points
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from tests.analysis.test_noise import Rows, run

ONE: Rows = {"q1": (1.0, {}), "q0": (0.0, {})}
TWO: Rows = {"q0": (1.0, {}), "q2": (1.0, {})}


def test_points_are_named_by_number_and_after_their_run_where_there_are_several(tmp_path: Path) -> None:
    for name in ("a", "b", "sub/a"):
        run(tmp_path / name, ONE, TWO)
    a, b, other = tmp_path / "a", tmp_path / "b", tmp_path / "sub" / "a"
    assert [point.name for point in read_run_points([a], "f1")] == ["0", "1"]
    assert [point.name for point in read_run_points([a, b, a], "f1")] == ["a:0", "a:1", "b:0", "b:1"]
    assert [point.name for point in read_run_points([a, other], "f1")] == [
        f"{folder}:{number}" for folder in (a, other) for number in (0, 1)
    ]


def test_the_questions_that_both_score_in_order(tmp_path: Path) -> None:
    run(tmp_path / "run", ONE, TWO)
    points = read_points(RunFolder(tmp_path / "run"), ["hits_at_1"])
    assert pair_scores(points[0], points[1], "hits_at_1").rows() == [("q0", 0.0, 1.0)]
    assert pair_scores(points[0], points[0], "hits_at_1").rows() == [("q0", 0.0, 0.0), ("q1", 1.0, 1.0)]


def test_some_questions_alone(tmp_path: Path) -> None:
    run(tmp_path / "run", ONE, TWO)
    points = read_points(RunFolder(tmp_path / "run"), ["question"], questions={"q2"})
    assert {number: rows.rows() for number, rows in points.items()} == {1: [("q2", "q2?")]}


def test_a_point_without_a_finished_question_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"point 1 of .*run has no finished question yet"):
        run(tmp_path / "run", ONE, {})
