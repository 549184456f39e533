"""`kgqa compare`: its figures agree with the traces of the runs."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import scipy

from pipeline.evaluation.statistics import benjamini_hochberg, holm
from pipeline.traces.folder import RunFolder
from tests.cli.compare.support import WORLD, evaluate, figures, rows, run_family, write_family
from tests.cli.conftest import Kgqa


def test_the_figures_are_those_of_the_traces(runs: Path, kgqa: Kgqa) -> None:
    found = figures(kgqa, runs / "good", runs / "bad")
    assert (found["base"]["name"], found["dataset"], found["cluster"]) == ("good:0", "synthetic", None)
    (point,) = found["points"]
    assert (point["name"], point["questions"]) == ("bad:0", 40)

    costs = ("llm_calls", "prompt_tokens", "completion_tokens", "wall_s")
    good, bad = rows(runs / "good", "hits_at_1", *costs).head(40), rows(runs / "bad", "hits_at_1", *costs)
    assert good["question_id"].equals(bad["question_id"])
    won = int((bad["hits_at_1"] > good["hits_at_1"]).sum())
    lost = int((bad["hits_at_1"] < good["hits_at_1"]).sum())
    assert (point["won"], point["lost"]) == (won, lost)
    assert lost > won + 5, "else this says little"
    assert point["base_score"] == pytest.approx(good["hits_at_1"].mean())
    assert point["score"] == pytest.approx(bad["hits_at_1"].mean())
    assert point["difference"] == pytest.approx((won - lost) / 40)
    assert point["interval"][0] < point["difference"] < point["interval"][1] < 0
    assert point["p_value"] == pytest.approx(scipy.stats.binomtest(won, won + lost).pvalue)
    assert (point["test"], point["corrected_p"], point["verdict"]) == ("mcnemar", point["p_value"], "worse")
    for side, of in ((point["base_cost"], good), (point["cost"], bad)):
        assert side["calls"] == pytest.approx(of["llm_calls"].mean())
        assert side["tokens"] == pytest.approx((of["prompt_tokens"] + of["completion_tokens"]).mean())
        assert side["wall_s"] is None, "seconds of a simulated model mean nothing"
    extra = point["cost"]["calls"] - point["base_cost"]["calls"]
    assert point["points_per_call"] == pytest.approx(100 * point["difference"] / extra)


def test_a_score_between_0_and_1_is_tested_by_the_bootstrap(runs: Path, kgqa: Kgqa) -> None:
    (point,) = figures(kgqa, runs / "good", runs / "bad", "score=f1")["points"]
    assert (point["test"], point["verdict"]) == ("bootstrap", "worse")
    assert point["score"] == pytest.approx(rows(runs / "bad", "f1")["f1"].mean())


def test_another_base_reverses_the_differences(runs: Path, kgqa: Kgqa) -> None:
    (there,) = figures(kgqa, runs / "good", runs / "bad")["points"]
    (back,) = figures(kgqa, runs / "good", runs / "bad", "base=bad:0")["points"]
    by_path = figures(kgqa, runs / "good", runs / "bad", f"base={runs / 'bad'}:0")["points"]
    assert by_path == [back]
    assert (back["name"], back["verdict"]) == ("good:0", "better")
    assert back["difference"] == pytest.approx(-there["difference"])
    assert (back["won"], back["lost"]) == (there["lost"], there["won"])
    assert back["p_value"] == pytest.approx(there["p_value"])


@pytest.mark.exhaustive
def test_all_configurations_of_a_run_are_compared_and_their_p_values_corrected(kgqa: Kgqa) -> None:
    words = (*WORLD, "run.limit=60", "method=parog", "llm=oracle", "llm.error_rate=0.3", "run.dir=run")
    assert kgqa("ablations", *words).code == 0
    for correction, corrected in (("holm", holm), ("bh", benjamini_hochberg)):
        points = figures(kgqa, "run", "base=1", f"correction={correction}")["points"]
        assert [point["name"] for point in points] == ["0", "2", "3", "4", "5"]
        p_values = [point["p_value"] for point in points]
        assert 0 < min(p_values) < 0.01, "else there is nothing to correct"
        computed = [(point["score"], point["cost"]["tokens"]) for point in points]
        distinct = dict(zip(computed, p_values, strict=True))
        assert len(distinct) == 4, "an ablation that changed no call counts once, with what it leaves as it was"
        expected = dict(zip(distinct, corrected(list(distinct.values())).tolist(), strict=True))
        assert [point["corrected_p"] for point in points] == pytest.approx([expected[each] for each in computed])
        assert {point["verdict"] for point in points if point["corrected_p"] > 0.05} <= {"same", "inconclusive"}


def test_two_configurations_of_a_sweep_are_compared_by_their_numbers(sweep: Path, kgqa: Kgqa) -> None:
    found = figures(kgqa, sweep, "configuration=[2,1]")
    assert (found["base"]["point"], [each["point"] for each in found["points"]]) == (2, [1])
    assert found["points"][0]["corrected_p"] == found["points"][0]["p_value"], "nothing else was compared"
    against = figures(kgqa, sweep, "configuration=1", "base=2")
    assert (against["base"]["point"], [each["point"] for each in against["points"]]) == (2, [1])
    shown = kgqa("compare", sweep, "configuration=1")
    assert shown.err.strip().endswith("configuration=1 is a single one: name two, as in configuration=[0,3], or a base")
    assert (
        "configuration=99: these runs have no configuration of this name with a finished question. They have 0, "
        in kgqa("compare", sweep, "configuration=[0,99]").err
    )


def test_without_a_difference_there_is_no_test(kgqa: Kgqa) -> None:
    words = ("llm=oracle", "run.limit=4", "run.dir=equal")
    assert kgqa("sweep", "method=cot", "run.seed=1,2,3", *WORLD, *words).code == 0
    said = " ".join(kgqa("compare", "equal").out.split())
    assert "no test: no other configuration differs from the base in its scores, calls or tokens" in said
    assert "corrected" not in said


def test_a_method_without_lookups_is_named_where_the_oracle_answers(kgqa: Kgqa) -> None:
    assert kgqa("sweep", *WORLD, "method=cot,srp", "llm=oracle,similarity", "run.limit=5", "run.dir=run").code == 0
    alone = "cot: looked up nothing in the graph, so the score is the oracle's alone"
    assert alone in kgqa("compare", "run").out
    assert "looked up nothing" not in kgqa("compare", "run", "configuration=[1,3]").out, "the similarity policy"
    assert alone in kgqa("report", "run").out


def test_the_row_of_the_base_is_of_all_its_questions_if_the_others_have_fewer(
    runs: Path, kgqa: Kgqa, tmp_path: Path
) -> None:
    evaluate(kgqa, "few", "llm=oracle", "run.limit=10", "method.depth=1")
    assert kgqa("compare", runs / "good", runs / "bad", "few", "table=t.csv").code == 0
    base, *others = csv.DictReader((tmp_path / "t.csv").read_text("utf-8").splitlines())
    (own,) = json.loads((runs / "good" / "summary.json").read_text())["points"]
    assert (base["questions"], {each["questions"] for each in others}) == ("60", {"40", "10"})
    assert float(base["tokens"]) == pytest.approx(own["tokens"] / 60, abs=0.06)
    assert float(base["calls"]) == pytest.approx(own["llm_calls"] / 60, abs=0.06)


def test_the_first_questions_that_flipped_are_shown_with_both_answers_and_gold(
    runs: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    columns = ("hits_at_1", "question", "answers", "gold")
    both = rows(runs / "good", *columns).join(rows(runs / "bad", *columns), on="question_id", suffix="_bad")
    lost = both.filter(pl.col("hits_at_1") > pl.col("hits_at_1_bad")).sort("question_id").to_dicts()
    won = both.filter(pl.col("hits_at_1") < pl.col("hits_at_1_bad")).sort("question_id").to_dicts()
    text = " ".join(kgqa("compare", runs / "good", runs / "bad", "flips=bad:0", "top=2").out.split())
    of_won = f"{len(won)} question{'' if len(won) == 1 else 's'} wrong → right"
    assert f"from good:0 to bad:0: {len(lost)} questions right → wrong, {of_won}" in text
    for flip in (*lost[:2], *won[:2]):
        assert flip["question"] in text
        assert flip["question_id"] in text
        assert all(side[0] in text for side in (flip["answers"], flip["answers_bad"], flip["gold"]) if side)
    assert lost[2]["question_id"] not in text
    assert f"the first 2 of each; top={len(lost)} prints all" in text
    assert "right → wrong" not in kgqa("compare", runs / "good", runs / "bad").out

    flips = figures(kgqa, runs / "good", runs / "bad", "flips=bad")["flips"]
    assert flips["name"] == "bad:0"
    assert [flip["question_id"] for flip in flips["lost"]] == [flip["question_id"] for flip in lost]
    assert flips["lost"][0]["base"] == lost[0]["answers"]
    assert flips["lost"][0]["other"] == lost[0]["answers_bad"]
    assert [flip["question_id"] for flip in flips["won"]] == [flip["question_id"] for flip in won]


def test_configurations_that_answer_alike_have_no_flips(kgqa: Kgqa) -> None:
    words = (*WORLD, "method.retries=0,1", "method=cot", "llm=oracle", "run.limit=5", "run.dir=run")
    assert (
        "(of 2 equal ones the one with the fewest calls, and of these the fewest tokens)" in kgqa("sweep", *words).out
    )
    for chosen in (("configuration=[0,1]", "flips=1"), ("base=1", "flips=0")):
        shown = kgqa("compare", "run", *chosen)
        assert shown.code == 0, shown.err
        base, other = ("0", "1") if chosen[1] == "flips=1" else ("1", "0")
        assert f"from {base} to {other}: 0 questions changed" in shown.out
        found = figures(kgqa, "run", *chosen)["flips"]
        assert (found["name"], found["lost"], found["won"]) == (other, [], [])


def test_the_base_best_has_the_highest_score_and_the_fewest_calls(sweep: Path, kgqa: Kgqa) -> None:
    points = json.loads((sweep / "summary.json").read_text())["points"]
    best = max(points, key=lambda point: (point["hits_at_1"], -point["llm_calls"]))
    assert best["point"] > 0, "else this says nothing"
    found = figures(kgqa, sweep, "base=best")
    assert found["base"]["point"] == best["point"]
    assert len(found["points"]) == 23
    assert {point["verdict"] for point in found["points"]} <= {"same", "inconclusive", "worse"}
    assert any("part of a lead may be chance" in note for note in found["notes"])
    rule = "of equal ones the one with the fewest calls, and of these the fewest tokens"
    assert any(rule in note for note in found["notes"])
    assert rule in " ".join(kgqa("compare", "--help").out.split())
    by_f1 = max(points, key=lambda point: (point["f1"], -point["llm_calls"]))
    assert figures(kgqa, sweep, "base=best", "score=f1")["base"]["point"] == by_f1["point"]


def test_questions_that_share_a_source_are_drawn_together(kgqa: Kgqa) -> None:
    write_family(24, sources=6)
    run_family(kgqa, "good", "llm=oracle")
    run_family(kgqa, "bad", "method=cot", "llm=similarity")
    (by_source,) = figures(kgqa, "good", "bad")["points"]
    (plain,) = figures(kgqa, "good", "bad", "cluster=none")["points"]
    assert (by_source["sources"], plain["sources"]) == (6, 24)
    assert by_source["lost"] == plain["lost"] == 24
    assert by_source["p_value"] == pytest.approx(2 * 0.5**6), "six tosses, all on one side"
    assert plain["p_value"] == pytest.approx(2 * 0.5**24)
    assert figures(kgqa, "good", "bad", "cluster=source") == figures(kgqa, "good", "bad")
    assert "share a `source`, 6 clusters" in " ".join(kgqa("compare", "good", "bad").out.split())


def test_copies_of_questions_are_said_to_be_taken_for_independent(kgqa: Kgqa) -> None:
    write_family(6)
    rows = list(map(json.loads, Path("questions.jsonl").read_text().splitlines()))
    copies = [*rows, *({**row, "id": f"{row['id']}-again"} for row in rows[:2])]
    said = "2 of 8 questions repeat an earlier one, with its text and topic entities"
    for source in (False, True):
        with Path("questions.jsonl").open("w") as file:
            file.writelines(
                f"{json.dumps({**row, **({'source': row['question']} if source else {})})}\n" for row in copies
            )
        run_family(kgqa, f"good-{source}", "llm=oracle")
        run_family(kgqa, f"bad-{source}", "method=cot", "llm=similarity")
        notes = " ".join(figures(kgqa, f"good-{source}", f"bad-{source}")["notes"])
        assert (said in notes) is not source
        assert (said in " ".join(kgqa("score", f"good-{source}").out.split())) is not source


def test_questions_without_a_source_are_independent(kgqa: Kgqa) -> None:
    write_family(6)
    run_family(kgqa, "good", "llm=oracle")
    run_family(kgqa, "bad", "method=cot", "llm=similarity")
    found = figures(kgqa, "good", "bad")
    assert (found["cluster"], found["points"][0]["sources"]) == (None, 6)
    said = kgqa("compare", "good", "bad", "cluster=source").sentence
    assert said == "cluster=source: no question has this field in `meta`, which has no field"


def test_equal_configurations_over_more_questions_than_the_base_count_once(kgqa: Kgqa) -> None:
    words = ("llm=oracle", "llm.error_rate=0.4", "run.limit=10,20", "budget.max_kg_queries=1,400,500", "run.dir=run")
    assert kgqa("sweep", *WORLD, *words).code == 0
    shown = " ".join(kgqa("compare", "run").out.split())
    assert "corrected for 1 comparison (Holm)" in shown


def test_the_summary_of_a_run_is_not_read_for_each_configuration(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size grows with the number of configurations: a thousand of them took minutes."""
    read: list[RunFolder] = []
    original = RunFolder.read_summary

    def read_summary(folder: RunFolder) -> dict[str, Any] | None:
        read.append(folder)
        return original(folder)

    counts = []
    for budgets in ("1,2", "1,2,3,4,5,6"):
        run = f"{tmp_path}/{len(budgets)}"
        words = ("method=cot", "llm=oracle", "run.limit=4", f"budget.max_llm_calls={budgets}", f"run.dir={run}")
        assert kgqa("sweep", *WORLD, *words).code == 0
        with monkeypatch.context() as counted:
            counted.setattr(RunFolder, "read_summary", read_summary)
            assert kgqa("compare", run).code == 0
        counts.append(len(read))
        read.clear()
    assert counts[0] == counts[1]


def test_a_comparison_names_the_configurations_whose_questions_met_a_limit(kgqa: Kgqa) -> None:
    words = ("method=srp", "method.depth=1,2", *WORLD, "llm=oracle", "run.limit=8", "run.dir=run")
    kgqa("sweep", *words, "budget.max_llm_calls=2")
    said = " ".join(kgqa("compare", "run").out.split())
    assert re.search(r"met a limit of budget or of the method, which may decide their scores: [\d.]+ % in", said)
    kgqa("sweep", *words, "run.restart=true")
    assert "met a limit" not in kgqa("compare", "run").out
