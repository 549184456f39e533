"""Differences between two runs of one configuration, in calls and scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.analysis.comparison_tables import rerun_variance_lines
from pipeline.analysis.paired import RunConfiguration, read_configurations
from pipeline.analysis.rerun_variance import measure_rerun_variance
from pipeline.errors import UserError
from pipeline.evaluation.metrics import Scores
from pipeline.traces.folder import RunFolder
from pipeline.traces.schema import Counters, Step, TraceRow
from pipeline.traces.writer import write_shard
from pipeline.types import Answer, Example, Gold, Question
from tests.support import ORIGIN, run_file

Rows = dict[str, tuple[float, dict[str, str | None]]]
"""Question → its score, and the completion of each of its calls by key."""


def run(path: Path, *configurations: Rows) -> list[RunConfiguration]:
    """Write a run folder with these configurations, and read it."""
    folder = RunFolder(path)
    folder.create()
    folder.write_run(run_file(len(configurations)))
    rows = [_row(number, id, *of) for number, part in enumerate(configurations) for id, of in part.items()]
    write_shard(folder.shard(0), rows, ORIGIN)
    return read_configurations([path], "hits_at_1")


def _row(number: int, id: str, score: float, calls: dict[str, str | None]) -> TraceRow:
    steps = [Step(0, "kg", "relations", 0.0)]
    steps += [Step(place, "llm", "r", 0.0, key=key, completion=text) for place, (key, text) in enumerate(calls.items())]
    example = Example(Question(id, "toy", "test", f"{id}?"), Gold())
    return TraceRow(number, "srp", example, Answer(), Scores(hits_at_1=score), Counters(), steps)


def test_calls_with_equal_keys_are_compared_and_others_are_counted(tmp_path: Path) -> None:
    other: Rows = {"q0": (1.0, {"a": "never", "z": "mind"}), "q1": (1.0, {}), "q2": (1.0, {}), "q3": (1.0, {})}
    first: Rows = {
        "q0": (1.0, {"a": "same", "b": "one"}),
        "q1": (0.0, {"a": "same"}),
        "q2": (1.0, {"a": "one", "c": "next"}),
        "q3": (1.0, {"a": "not in the sample"}),
    }
    again: Rows = {
        "q0": (1.0, {"a": "same", "b": "another"}),
        "q1": (0.0, {"a": "same", "failed": None}),
        "q2": (0.0, {"a": "another", "d": "next"}),
    }
    (_, base), (second,) = run(tmp_path / "run", other, first), run(tmp_path / "again", again)
    variance = measure_rerun_variance(base, second, "hits_at_1")
    assert (variance.questions, variance.repeated, variance.differing, variance.unrepeated) == (3, 4, 2, 2)
    assert variance.absolute == pytest.approx(1 / 3)
    assert variance.net.mean == pytest.approx(-1 / 3)
    assert not variance.is_equal
    assert variance.margin(100) == pytest.approx(1.96 * (2 / 4 / 100) ** 0.5, rel=1e-3)
    text = " ".join(rerun_variance_lines(base, variance, score="hits_at_1", questions=100))
    assert text.startswith("noise: 3 questions of 1 were run again. Of ")
    assert "2 returned a different text (50.0 %); 2 more calls" in text
    assert (
        "changes by 33.3 percentage points per question in absolute value, and by -33.3 (-100.0…+0.0) on average"
        in text
    )


def test_questions_that_only_the_second_run_answered_are_told_apart(tmp_path: Path) -> None:
    first: Rows = {"q1": (1.0, {"a": "one"})}
    (base,), (second,) = run(tmp_path / "run", first), run(tmp_path / "again", {**first, "q2": (1.0, {"a": "two"})})
    variance = measure_rerun_variance(base, second, "hits_at_1")
    (said, _) = rerun_variance_lines(base, variance, score="hits_at_1", questions=100)
    assert said.startswith("noise: 2 questions of 0 were run again, of which it had answered 1, and each of 1 call")


def test_differing_calls_with_equal_scores_still_have_a_margin(tmp_path: Path) -> None:
    first: Rows = {f"q{number}": (1.0, {"a": "one"}) for number in range(9)}
    again: Rows = {**first, "q3": (1.0, {"a": "another"})}
    (base,), (second,) = run(tmp_path / "run", first), run(tmp_path / "again", again)
    variance = measure_rerun_variance(base, second, "hits_at_1")
    assert (variance.differing, variance.absolute) == (1, 0)
    assert variance.margin(90) == pytest.approx(1.96 * (1 / 10 / 90) ** 0.5, rel=1e-3)


@pytest.mark.parametrize("label", ["oracle", None])
def test_equal_replies_prove_only_of_a_simulated_model_that_it_is_deterministic(
    tmp_path: Path, label: str | None
) -> None:
    first: Rows = {f"q{number}": (number % 2, {"a": "one", "b": "two"}) for number in range(6)}
    (base,), (second,) = run(tmp_path / "run", first), run(tmp_path / "again", first)
    base = replace(base, served={**base.served, "label": label})
    variance = measure_rerun_variance(base, second, "hits_at_1")
    assert variance.is_equal
    said, conclusion = rerun_variance_lines(base, variance, score="hits_at_1", questions=1000)
    assert "each of 12 calls returned the same text" in said
    if label:
        assert (variance.margin(1000), conclusion) == (0, "the model is deterministic, and its noise is 0")
    else:
        assert variance.margin(1000) == pytest.approx(1.96 * (1 / 7 / 1000) ** 0.5, rel=1e-3)
        assert "over 1,000 questions, differences of up to 2.3 percentage points may be noise" in conclusion


def test_a_base_without_scores_for_the_sample_is_an_error(tmp_path: Path) -> None:
    (base,) = run(tmp_path / "run", {"q7": (1.0, {})})
    (second,) = run(tmp_path / "again", {"q0": (1.0, {}), "q1": (1.0, {})})
    with pytest.raises(UserError, match=r"no answer to the 2 questions .* run its command again to complete it"):
        measure_rerun_variance(base, second, "hits_at_1")


def test_a_base_that_early_stopping_dropped_is_not_told_to_go_on(tmp_path: Path) -> None:
    (base,) = run(tmp_path / "run", {"q7": (1.0, {})})
    base = replace(base, config={"run": {"early_stopping": 25}})
    (second,) = run(tmp_path / "again", {"q0": (1.0, {})})
    with pytest.raises(UserError, match=r"no answer to the 1 question .*: set noise.questions higher"):
        measure_rerun_variance(base, second, "hits_at_1")
