"""What a second run of the same configuration changes: in the calls, and in the score."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.analysis.comparison_tables import noise_lines
from pipeline.analysis.noise import measure_noise
from pipeline.analysis.pairs import RunPoint, read_run_points
from pipeline.errors import UserError
from pipeline.evaluation.metrics import Scores
from pipeline.traces.folder import RunFolder
from pipeline.traces.schema import Counters, Step, TraceRow
from pipeline.traces.writer import write_shard
from pipeline.types import Answer, Example, Gold, Question

Rows = dict[str, tuple[float, dict[str, str | None]]]
"""Question → its score, and the completion of each of its calls by key."""


def run(path: Path, *points: Rows) -> list[RunPoint]:
    """A run folder with these points."""
    folder = RunFolder(path)
    folder.create()
    evaluation = {"_target_": "pipeline.evaluation.settings.Evaluation"}
    saved = {"points": [{"overrides": [], "config": {"evaluation": evaluation}} for _ in points]}
    folder.write_run({**saved, "served": [{"model": "m", "label": None, "graph": "g"} for _ in points]})
    rows = [_row(number, id, *of) for number, point in enumerate(points) for id, of in point.items()]
    write_shard(folder.shard(0), rows)
    return read_run_points([path], "hits_at_1")


def _row(point: int, id: str, score: float, calls: dict[str, str | None]) -> TraceRow:
    steps = [Step(0, "kg", "relations", 0.0)]
    steps += [Step(place, "llm", "r", 0.0, key=key, completion=text) for place, (key, text) in enumerate(calls.items())]
    example = Example(Question(id, "toy", "test", f"{id}?"), Gold())
    return TraceRow(point, "srp", example, Answer(), Scores(hits_at_1=score), Counters(), steps)


def test_calls_of_equal_keys_are_compared_and_others_counted_apart(tmp_path: Path) -> None:
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
    noise = measure_noise(base, second, "hits_at_1")
    assert (noise.questions, noise.repeated, noise.differing, noise.unrepeated) == (3, 4, 2, 2)
    assert noise.absolute == pytest.approx(1 / 3)
    assert noise.net.mean == pytest.approx(-1 / 3)
    assert not noise.none
    assert noise.margin(100) == pytest.approx(1.96 * (2 / 4 / 100) ** 0.5, rel=1e-3)
    text = " ".join(noise_lines(base, noise, score="hits_at_1", questions=100))
    assert "2 came out differently (50.0%); 2 more followed" in text
    assert "moves by 33.3 points per question, up or down, and by -33.3 (-100.0 … +0.0) in all" in text


def test_calls_that_differ_without_moving_a_score_are_no_proof_of_silence(tmp_path: Path) -> None:
    first: Rows = {f"q{number}": (1.0, {"a": "one"}) for number in range(9)}
    again: Rows = {**first, "q3": (1.0, {"a": "another"})}
    (base,), (second,) = run(tmp_path / "run", first), run(tmp_path / "again", again)
    noise = measure_noise(base, second, "hits_at_1")
    assert (noise.differing, noise.absolute) == (1, 0)
    assert noise.margin(90) == pytest.approx(1.96 * (1 / 10 / 90) ** 0.5, rel=1e-3)


def test_a_run_that_repeats_itself_has_none(tmp_path: Path) -> None:
    first: Rows = {f"q{number}": (number % 2, {"a": "one", "b": "two"}) for number in range(6)}
    (base,), (second,) = run(tmp_path / "run", first), run(tmp_path / "again", first)
    noise = measure_noise(base, second, "hits_at_1")
    assert noise.none
    assert noise.margin(1000) == 0
    assert "each of 12 calls came out the same" in noise_lines(base, noise, score="hits_at_1", questions=6)[0]


def test_a_base_that_has_not_come_to_the_sample_yet_is_refused(tmp_path: Path) -> None:
    (base,) = run(tmp_path / "run", {"q7": (1.0, {})})
    (second,) = run(tmp_path / "again", {"q0": (1.0, {}), "q1": (1.0, {})})
    with pytest.raises(UserError, match="has finished none of the first 2 questions yet"):
        measure_noise(base, second, "hits_at_1")
