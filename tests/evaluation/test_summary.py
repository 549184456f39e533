"""The points of a run: means, denominators, intervals, costs and kinds of questions (methods.md §9.2, §9.6)."""

from __future__ import annotations

import json

import numpy as np
import orjson
import polars as pl
import pytest

from pipeline.evaluation.rescore import SCORES, rescore
from pipeline.evaluation.settings import Evaluation
from pipeline.evaluation.summary import Point, PointSummary, aggregate, tally

QUICK = Evaluation(bootstrap_resamples=500)


def frame(*rows: dict[str, object]) -> pl.DataFrame:
    blank = {
        "point": 0,
        "question_id": "q",
        "dataset": "webqsp",
        "method": "srp",
        "status": "ok",
        "meta": {},
        "answers": [],
        "initial_answers": None,
        "raw_answer": "",
        "gold": ["Lyon"],
        "llm_calls": 4,
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "wall_s": 0.5,
    }
    full = [{**blank, **row} for row in rows]
    for row in full:
        row["meta"] = orjson.dumps(row["meta"]).decode()
        row["answer_ids"] = [None] * len(row["answers"])
        row["initial_answer_ids"] = [None] * len(row["initial_answers"] or [])
        row["gold_ids"], row["gold_aliases"] = [None] * len(row["gold"]), [[] for _ in row["gold"]]
        row["evidence"] = []
    schema = {"answers": pl.List(pl.String), "gold": pl.List(pl.String), "answer_ids": pl.List(pl.String)}
    schema |= {
        "initial_answers": pl.List(pl.String),
        "initial_answer_ids": pl.List(pl.String),
        "gold_ids": pl.List(pl.String),
        "gold_aliases": pl.List(pl.List(pl.String)),
        "evidence": pl.List(pl.Null),
    }
    return rescore(pl.DataFrame(full, schema_overrides={**schema, "point": pl.Int32}))


RIGHT, WRONG = {"answers": ["Lyon"]}, {"answers": ["Nice"]}
FAILED = {"status": "failed", "answers": []}
NO_GOLD = {"gold": [], "answers": ["Lyon"]}


def only(rows: pl.DataFrame, **options: object) -> PointSummary:
    (point,) = aggregate(tally([rows]), settings=QUICK, **options)  # type: ignore[arg-type]
    return point


def test_a_failed_question_is_wrong_and_one_without_gold_is_left_out() -> None:
    point = only(frame(RIGHT, RIGHT, WRONG, FAILED, NO_GOLD))
    assert (point.questions, point.failed, point.empty_gold, point.not_run) == (5, 1, 1, 0)
    assert point.statuses == {"failed": 1, "ok": 4}
    assert point.scores["hits_at_1"].mean == 2 / 4
    assert point.scores["hits_at_1"].questions == 4


def test_questions_that_were_not_run_are_counted_apart() -> None:
    point = only(frame(RIGHT, WRONG), points={0: Point(questions=10)})
    assert (point.questions, point.not_run, point.scores["hits_at_1"].mean) == (10, 8, 0.5)


def test_a_mean_is_over_the_questions_that_have_the_score() -> None:
    point = only(frame(RIGHT, WRONG, WRONG))
    assert point.scores["answer_supported"].questions == 1
    assert "rouge_l" not in point.scores


def test_rates_of_correction_and_damage_are_over_the_wrong_and_the_right_first_answers() -> None:
    corrected, still_wrong = {**RIGHT, "initial_answers": []}, {**WRONG, "initial_answers": ["Nice"]}
    kept, damaged = {**RIGHT, "initial_answers": ["Lyon"]}, {**WRONG, "initial_answers": ["Lyon"]}
    scores = only(frame(RIGHT, FAILED, corrected, *[still_wrong] * 3, *[kept] * 4, damaged)).scores
    assert (scores["corrected"].mean, scores["corrected"].questions) == (1 / 4, 4)
    assert (scores["damaged"].mean, scores["damaged"].questions) == (1 / 5, 5)
    assert scores["initial_hits_at_1"].mean == 5 / 9


def test_the_interval_is_that_of_a_bootstrap_over_questions() -> None:
    point = only(frame(*[RIGHT] * 30, *[WRONG] * 10))
    score = point.scores["hits_at_1"]
    draws = np.random.default_rng(1).choice([1] * 30 + [0] * 10, size=(4000, 40)).mean(axis=1)
    assert (score.low, score.high) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.03)


def test_the_order_of_rows_changes_nothing() -> None:
    rows = frame(
        *[{**RIGHT, "meta": {"hops": n % 3}} for n in range(20)], *[{**WRONG, "meta": {"hops": 2}}] * 9, FAILED
    )
    assert aggregate(tally([rows]), settings=QUICK) == aggregate(tally([rows.reverse()]), settings=QUICK)


def test_points_come_in_order_with_what_the_run_knows_of_them() -> None:
    rows = frame({**WRONG, "point": 2}, {**RIGHT, "point": 0, "method": "cot"}, {**RIGHT, "point": 2})
    known = {2: Point(("method.depth=3",), "oracle"), 0: Point(label="similarity")}
    first, second = aggregate(tally([rows]), points=known, settings=QUICK)
    assert (first.point, first.method, first.label, first.overrides) == (0, "cot", "similarity", ())
    assert (second.point, second.method, second.label, second.overrides) == (2, "srp", "oracle", ("method.depth=3",))
    assert second.scores["hits_at_1"].mean == 0.5


def test_costs_are_totals() -> None:
    counters = only(frame(RIGHT, WRONG, FAILED)).counters
    assert (counters["llm_calls"], counters["tokens"], counters["wall_s"]) == (12, 330, 1.5)


def test_totals_do_not_overflow() -> None:
    rows = frame(RIGHT, RIGHT).with_columns(pl.lit(2**31 - 1, pl.Int32).alias("prompt_tokens"))
    assert only(rows).counters["prompt_tokens"] == 2 * (2**31 - 1)


def test_breakdown_by_every_field_that_tells_kinds_apart() -> None:
    rows = frame(
        {**RIGHT, "meta": {"type": "composition", "hops": 2, "split": "test", "constraints": True}},
        {**WRONG, "meta": {"type": "composition", "hops": 10, "split": "test", "constraints": False}},
        {**RIGHT, "meta": {"type": "conjunction", "hops": 2, "split": "test", "constraints": False}},
        {**RIGHT, "meta": {"type": None, "hops": 2, "split": "test", "constraints": False}},
    )
    breakdown = only(rows).breakdown
    found = {
        (field, group.value): (group.questions, round(group.scores["hits_at_1"].mean, 3))
        for field, groups in breakdown.items()
        for group in groups
    }
    assert found == {
        ("constraints", "false"): (3, 0.667),
        ("constraints", "true"): (1, 1.0),
        ("hops", "2"): (3, 1.0),
        ("hops", "10"): (1, 0.0),
        ("type", "composition"): (2, 0.5),
        ("type", "conjunction"): (1, 1.0),
    }
    assert [group.value for group in breakdown["hops"]] == ["2", "10"]


def test_a_field_that_names_each_question_is_no_kind() -> None:
    assert only(frame(*[{**RIGHT, "meta": {"number": n}} for n in range(60)])).breakdown == {}


def test_the_summary_is_json_with_every_score_under_its_name() -> None:
    point = only(frame(RIGHT, WRONG, {**RIGHT, "meta": {"type": "a"}}, {**RIGHT, "meta": {"type": "b"}}))
    summary = json.loads(json.dumps(point.to_dict(), allow_nan=False))
    assert {"method", "overrides", "questions", "failed", "hits_at_1", "f1", "llm_calls", "tokens"} <= summary.keys()
    assert set(SCORES) <= summary.keys()
    assert summary["hits_at_1"] == 0.75
    assert summary["rouge_l"] is None
    low, high = summary["intervals"]["hits_at_1"]
    assert low <= 0.75 <= high
    assert [group["value"] for group in summary["breakdown"]["type"]] == ["a", "b"]


def test_a_tally_of_parts_is_the_tally_of_the_whole() -> None:
    rows = frame(*[RIGHT, WRONG, FAILED, NO_GOLD, {**RIGHT, "meta": {"hops": 2}}] * 40)
    whole, parts = tally([rows]), tally(rows.slice(start, 3) for start in range(0, rows.height, 3))
    assert whole.height == 5
    assert aggregate(parts, settings=QUICK) == aggregate(whole, settings=QUICK)


def test_a_point_can_be_read_back() -> None:
    rows = frame(*({"meta": {"hops": n % 2}, **(RIGHT if n % 3 else WRONG)} for n in range(12)), NO_GOLD, FAILED)
    point = only(rows, points={0: Point(("method=srp",), "oracle", 20)})
    read = PointSummary.from_dict(json.loads(json.dumps(point.to_dict())))
    assert read.to_dict() == point.to_dict()
    assert read.scores == point.scores
    assert read.breakdown["hops"][1].scores["hits_at_1"] == point.breakdown["hops"][1].scores["hits_at_1"]
    with pytest.raises(KeyError):
        PointSummary.from_dict({"point": 0})
