"""Summaries of configurations: means, denominators, intervals, costs, breakdowns (specification §9.2, §9.6)."""

from __future__ import annotations

import json

import numpy as np
import orjson
import polars as pl
import pytest

from pipeline.config import default
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.configuration_summary import (
    ConfigurationSummary,
    RequestedConfiguration,
    aggregate,
    group_equal_rows,
)
from pipeline.evaluation.rescore import SCORES, rescore
from pipeline.evaluation.score_tables import score_table

QUICK = default(ScoringConfig, bootstrap_resamples=500)


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
        "first_attempt": None,
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
        row["evidence"], row["followed_relations"], row["gold_relations"] = [], None, None
    schema = {"answers": pl.List(pl.String), "gold": pl.List(pl.String), "answer_ids": pl.List(pl.String)}
    schema |= {
        "initial_answers": pl.List(pl.String),
        "initial_answer_ids": pl.List(pl.String),
        "first_attempt": pl.String,
        "gold_ids": pl.List(pl.String),
        "gold_aliases": pl.List(pl.List(pl.String)),
        "evidence": pl.List(pl.Null),
        "followed_relations": pl.List(pl.String),
        "gold_relations": pl.List(pl.String),
    }
    return rescore(pl.DataFrame(full, schema_overrides={**schema, "point": pl.Int32}), scoring=QUICK)


RIGHT, WRONG = {"answers": ["Lyon"]}, {"answers": ["Nice"]}
FAILED = {"status": "failed", "answers": []}
NO_GOLD = {"gold": [], "answers": ["Lyon"]}


def only(rows: pl.DataFrame, **options: object) -> ConfigurationSummary:
    (summary,) = aggregate(group_equal_rows([rows]), scoring=QUICK, **options)  # type: ignore[arg-type]
    return summary


def test_a_failed_question_is_wrong_and_one_without_gold_is_left_out() -> None:
    summary = only(frame(RIGHT, RIGHT, WRONG, FAILED, NO_GOLD))
    assert (summary.questions, summary.failed, summary.empty_gold, summary.not_run) == (5, 1, 1, 0)
    assert summary.statuses == {"failed": 1, "ok": 4}
    assert summary.scores["hits_at_1"].mean == 2 / 4
    assert summary.scores["hits_at_1"].questions == 4


def test_questions_that_were_not_run_are_counted_separately() -> None:
    summary = only(frame(RIGHT, WRONG), configurations={0: RequestedConfiguration(questions=10)})
    assert (summary.questions, summary.not_run, summary.scores["hits_at_1"].mean) == (10, 8, 0.5)


def test_a_mean_is_over_the_questions_that_have_the_score() -> None:
    summary = only(frame(RIGHT, WRONG, WRONG))
    assert summary.scores["answer_supported"].questions == 1
    assert "rouge_l" not in summary.scores


def test_corrected_is_over_wrong_and_damaged_over_correct_first_answers() -> None:
    corrected, still_wrong = {**RIGHT, "initial_answers": []}, {**WRONG, "initial_answers": ["Nice"]}
    kept, damaged = {**RIGHT, "initial_answers": ["Lyon"]}, {**WRONG, "initial_answers": ["Lyon"]}
    scores = only(frame(RIGHT, FAILED, corrected, *[still_wrong] * 3, *[kept] * 4, damaged)).scores
    assert (scores["corrected"].mean, scores["corrected"].questions) == (1 / 4, 4)
    assert (scores["damaged"].mean, scores["damaged"].questions) == (1 / 5, 5)
    assert scores["initial_hits_at_1"].mean == 5 / 9


def test_the_interval_is_a_bootstrap_over_questions() -> None:
    summary = only(frame(*[RIGHT] * 30, *[WRONG] * 10))
    score = summary.scores["hits_at_1"]
    draws = np.random.default_rng(1).choice([1] * 30 + [0] * 10, size=(4000, 40)).mean(axis=1)
    assert (score.low, score.high) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.03)


def test_questions_with_the_same_source_widen_the_interval() -> None:
    rows = [{**(RIGHT if n % 4 < 2 else WRONG), "meta": {"source": f"w{n // 2}"}} for n in range(40)]
    shared = only(frame(*rows))
    apart = only(frame(*({**row, "meta": {}} for row in rows)))
    one = only(frame(*({**row, "meta": {"source": "w"}} for row in rows)))
    assert (shared.sources, apart.sources, one.sources) == (20, None, None)
    assert shared.scores["hits_at_1"].low < apart.scores["hits_at_1"].low < apart.scores["hits_at_1"].mean
    assert one.scores["hits_at_1"] == apart.scores["hits_at_1"]
    assert "questions share a `source`, 20 clusters" in str(score_table([shared]).caption)
    assert "source" not in str(score_table([apart]).caption)


def test_the_order_of_rows_changes_nothing() -> None:
    rows = frame(
        *[{**RIGHT, "meta": {"hops": n % 3}} for n in range(20)], *[{**WRONG, "meta": {"hops": 2}}] * 9, FAILED
    )
    assert aggregate(group_equal_rows([rows]), scoring=QUICK) == aggregate(
        group_equal_rows([rows.reverse()]), scoring=QUICK
    )


def test_configurations_are_sorted_and_have_the_facts_of_the_run() -> None:
    rows = frame({**WRONG, "point": 2}, {**RIGHT, "point": 0, "method": "cot"}, {**RIGHT, "point": 2})
    known = {2: RequestedConfiguration(("method.depth=3",), "oracle"), 0: RequestedConfiguration(label="similarity")}
    first, second = aggregate(group_equal_rows([rows]), configurations=known, scoring=QUICK)
    assert (first.number, first.method, first.label, first.overrides) == (0, "cot", "similarity", ())
    assert (second.number, second.method, second.label, second.overrides) == (2, "srp", "oracle", ("method.depth=3",))
    assert second.scores["hits_at_1"].mean == 0.5


def test_costs_are_totals() -> None:
    counters = only(frame(RIGHT, WRONG, FAILED)).counters
    assert (counters["llm_calls"], counters["tokens"], counters["wall_s"]) == (12, 330, 1.5)


def test_a_total_of_which_a_part_is_unknown_is_left_out() -> None:
    rows = frame(RIGHT, WRONG)
    known, unknown, absent = (
        only(rows.with_columns(pl.Series("critical_s", values, dtype=pl.Float32))).counters
        for values in ([1.5, 2.0], [1.5, None], [None, None])
    )
    assert known["critical_s"] == 3.5
    assert "critical_s" not in unknown | absent
    assert unknown["wall_s"] == 1.0


def test_totals_do_not_overflow() -> None:
    rows = frame(RIGHT, RIGHT).with_columns(pl.lit(2**31 - 1, pl.Int32).alias("prompt_tokens"))
    assert only(rows).counters["prompt_tokens"] == 2 * (2**31 - 1)


def test_the_breakdown_has_every_field_with_several_values() -> None:
    rows = frame(
        {**RIGHT, "meta": {"type": "composition", "hops": 2, "split": "test", "constraints": True}},
        {**WRONG, "meta": {"type": "composition", "hops": 10, "split": "test", "constraints": False}},
        {**RIGHT, "meta": {"type": "conjunction", "hops": 2, "split": "test", "constraints": False}},
        {**RIGHT, "meta": {"type": None, "hops": 2, "split": "test", "constraints": False}},
        {**RIGHT, "gold": [], "meta": {"type": "conjunction", "hops": 2, "split": "test", "constraints": False}},
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


def test_a_field_with_too_many_values_is_not_in_the_breakdown() -> None:
    assert only(frame(*[{**RIGHT, "meta": {"number": n}} for n in range(60)])).breakdown == {}


def test_the_summary_is_json_with_every_score_under_its_name() -> None:
    summary = only(frame(RIGHT, WRONG, {**RIGHT, "meta": {"type": "a"}}, {**RIGHT, "meta": {"type": "b"}}))
    saved = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert {"method", "overrides", "questions", "failed", "hits_at_1", "f1", "llm_calls", "tokens"} <= saved.keys()
    assert set(SCORES) <= saved.keys()
    assert saved["hits_at_1"] == 0.75
    assert saved["rouge_l"] is None
    low, high = saved["intervals"]["hits_at_1"]
    assert low <= 0.75 <= high
    assert [group["value"] for group in saved["breakdown"]["type"]] == ["a", "b"]


def test_a_tally_of_parts_equals_the_tally_of_the_whole() -> None:
    rows = frame(*[RIGHT, WRONG, FAILED, NO_GOLD, {**RIGHT, "meta": {"hops": 2}}] * 40)
    whole, parts = (
        group_equal_rows([rows]),
        group_equal_rows(rows.slice(start, 3) for start in range(0, rows.height, 3)),
    )
    assert whole.height == 5
    assert aggregate(parts, scoring=QUICK) == aggregate(whole, scoring=QUICK)


def test_a_summary_can_be_read_back() -> None:
    rows = frame(*({"meta": {"hops": n % 2}, **(RIGHT if n % 3 else WRONG)} for n in range(12)), NO_GOLD, FAILED)
    summary = only(rows, configurations={0: RequestedConfiguration(("method=srp",), "oracle", 20)})
    read = ConfigurationSummary.from_dict(json.loads(json.dumps(summary.to_dict())))
    assert read.to_dict() == summary.to_dict()
    assert read.scores == summary.scores
    assert read.breakdown["hops"][1].scores["hits_at_1"] == summary.breakdown["hops"][1].scores["hits_at_1"]
    with pytest.raises(KeyError):
        ConfigurationSummary.from_dict({"point": 0})
