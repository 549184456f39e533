"""`kgqa compare`: its figures agree with the traces of the runs."""

from __future__ import annotations

import csv
import json
import re
import shutil
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
import scipy

from pipeline import open_run
from pipeline.config import default
from pipeline.errors import UserError
from pipeline.evaluation.statistics import benjamini_hochberg, holm
from pipeline.simulation.world import SyntheticWorld
from pipeline.traces.folder import RunFolder
from tests.cli.conftest import FixedReply, Kgqa, serving
from tests.support import sampled

WORLD = ("dataset.triples=2000", "evaluation.bootstrap_resamples=1000", "engine.shard_size=10")


def evaluate(kgqa: Kgqa, folder: str | Path, *words: str) -> None:
    ran = kgqa("evaluate", *WORLD, f"run.dir={folder}", *words)
    assert ran.code == 0, ran.err


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`good` and `bad`: the oracle at two error rates, over 60 and over 40 questions."""
    from pipeline.cli.main import main

    folder = tmp_path_factory.mktemp("runs")
    for name, rate, limit in (("good", 0.1, 60), ("bad", 0.5, 40)):
        words = ("llm=oracle", f"llm.error_rate={rate}", f"run.limit={limit}", f"run.dir={folder / name}")
        assert main(["evaluate", *WORLD, *words]) == 0
    return folder


def figures(kgqa: Kgqa, *words: str | Path) -> dict[str, Any]:
    """The JSON document that `json=true` prints."""
    shown = kgqa("compare", *words, "json=true")
    assert shown.code == 0, shown.err
    document: dict[str, Any] = json.loads(shown.out)
    return document


def rows(run: Path, *columns: str) -> pl.DataFrame:
    return pl.read_parquet(run / "traces" / "*.parquet").select("question_id", *columns).sort("question_id")


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


def test_each_test_of_a_table_is_named(runs: Path, kgqa: Kgqa, tmp_path: Path) -> None:
    """The base against itself has two scores of 0 and 1, so its test is another one than for scores between them."""
    words = ("llm=oracle", "run.limit=40", "method=cot,tog", "llm.error_rate=0,0.5", "run.dir=mixed")
    assert kgqa("sweep", *WORLD, *words).code == 0
    tests = {point["test"] for point in figures(kgqa, "mixed", "score=f1")["points"]}
    assert tests == {"mcnemar", "bootstrap"}, "else this says nothing"
    said = " ".join(kgqa("compare", "mixed", "score=f1").out.split())
    assert "by p, McNemar's exact test where all scores are 0 or 1, else the paired bootstrap, corrected" in said
    said = " ".join(kgqa("compare", runs / "good", runs / "bad", "score=f1").out.split())
    assert "by p, the paired bootstrap" in said


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


def test_a_narrow_terminal_shows_fewer_columns(runs: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    *table, note, _ = kgqa("compare", runs / "good", runs / "bad").out.splitlines()
    assert max(map(len, table)) <= 60
    assert note.rstrip() == 'too wide, see table=FILE: "tokens", "calls", "flips"'


@pytest.fixture(scope="module")
def two_methods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ArG and SRP, in which SRP has keys of its own, and the value 0 of a key that is 0.0 by default."""
    from pipeline.cli.main import main

    folder = tmp_path_factory.mktemp("methods")
    own = "method.bind_top_k=2 method.shown_partial=8 method.candidates_total=20 method.judge_samples_per_path=5"
    (folder / "points.txt").write_text(f"method=arg\nmethod=srp method.temperature=0 {own}\n")
    words = ("llm=oracle", "llm.error_rate=0.3", "run.limit=40", f"run.dir={folder / 'run'}")
    assert main(["sweep", str(folder / "points.txt"), *WORLD, *words]) == 0
    return folder / "run"


@pytest.mark.parametrize("columns", sampled([60, 80, 100], every=3))
def test_the_difference_stays_longer_than_the_keys_of_one_method(
    columns: int, two_methods: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = kgqa("compare", two_methods).out
    assert re.search(r"-[\d.]+…|\+[\d.]+…", shown), "the interval"
    (headings,) = (line.split() for line in shown.splitlines() if "Hits@1" in line)
    assert {"method", "Hits@1", "difference", "flips", "p", "verdict"} <= set(headings)
    assert "temperature" not in shown, "0 and 0.0 are one value"
    assert '"bind_top_k"' in " ".join(shown.partition("too wide, see table=FILE:")[2].split())


@pytest.mark.parametrize("columns", [20, 25, 30, 40])
def test_each_row_can_be_identified_on_the_narrowest_terminal(
    columns: int, two_methods: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = kgqa("compare", two_methods, "base=best").out
    table = shown.rpartition("─")[2]
    assert re.findall(r"^ ([01]) .* (?:base|worse|better|inconclu)", table, re.MULTILINE)
    assert sorted(re.findall(r"^ ([01]) ", table, re.MULTILINE)) == ["0", "1"]


@pytest.mark.exhaustive
def test_nothing_is_too_wide_without_a_terminal(
    two_methods: Path, sweep: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    for words in (("compare", two_methods), ("compare", sweep), ("losses", sweep), ("score", sweep)):
        shown = kgqa(*words)
        assert shown.code == 0, shown.err
        assert "too wide" not in shown.out


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


def test_the_tables_fit_80_columns(runs: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = kgqa("compare", runs / "good", runs / "bad", "flips=bad", "top=2")
    assert (shown.code, shown.err) == (0, "")
    *table, sentence = shown.out.splitlines()
    assert max(map(len, table)) <= 80
    assert sentence.startswith("not all configurations answered the same questions: each is compared with the base on")
    text = " ".join(shown.out.split())
    oracle = "oracle: no language model, replies from the gold answers"
    for part in (
        "1 configuration compared with good:0, srp (oracle), on 40 common questions of synthetic",
        f"good: 1 configuration, 60 answered questions, synthetic (test), answered by {oracle}",
        f"bad: 1 configuration, 40 answered questions, synthetic (test), answered by {oracle}",
        "by p, McNemar's exact test",
        "worse",
    ):
        assert part in text
    assert re.search(r"good:0 +0\.1 +[\d.]+ +– +– +– +base", text)
    assert re.search(r"bad:0 +0\.5 +[\d.]+ +-[\d.]+ -[\d.]+…-[\d.]+ +\+\d+ -\d+ +<?[\d.]+ +worse", text)
    assert "corrected" not in text, "one comparison needs no correction"
    assert "run.dir" not in text
    assert "limit" not in text, "the sentence on the questions says this"


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


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 24 configurations: SRP and ArG over three axes."""
    from pipeline.cli.main import main

    folder = tmp_path_factory.mktemp("sweep") / "run"
    axes = ("method=arg,srp", "method.beam_width=1,3", "method.depth=1,2", "method.retries=0,1,2")
    words = ("llm=oracle", "llm.error_rate=0.2", "run.limit=20", f"run.dir={folder}")
    assert main(["sweep", *axes, *WORLD, *words]) == 0
    return folder


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


@pytest.mark.parametrize("columns", [80, 120])
def test_a_sweep_fits_a_screen_with_one_line_for_each_configuration(
    columns: int, sweep: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = kgqa("compare", sweep, "base=best").out.splitlines()
    assert len(shown) <= 34  # the lines about the run and the test wrap at 80 columns
    points = json.loads((sweep / "summary.json").read_text())["points"]
    rows = [line.split() for line in shown if re.match(r" +\d+ (arg|srp) ", line)]
    assert len(rows) == 11, "the base, and the first ten of the others"
    for row in rows:
        point = points[int(row[0])]
        words = [f"method={row[1]}", f"method.beam_width={row[2]}"]
        words += [f"method.depth={row[3]}", f"method.retries={row[4]}"]
        assert point["overrides"][:4] == words
        assert float(row[5]) == pytest.approx(100 * point["hits_at_1"])
    scores = [float(row[5]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert "13 more configurations left out of the table, with the verdicts " in " ".join(" ".join(shown).split())
    assert any('too wide, see table=FILE: "tokens"' in line for line in shown) is (columns == 80)
    (headings,) = (line for line in shown if "Hits@1" in line)
    assert ("tokens" in headings.split()) is (columns == 120)
    everything = kgqa("compare", sweep, "top=99").out
    assert len(re.findall(r"^ +\d+ (?:arg|srp) ", everything, re.MULTILINE)) == 24


def test_configurations_on_another_dataset_are_left_out_and_named(kgqa: Kgqa) -> None:
    words = ("dataset.name=a,b", "method=srp,arg", "llm=oracle", "run.limit=10", "run.dir=run")
    assert kgqa("sweep", *WORLD, *words).code == 0
    found = figures(kgqa, "run", "base=3")
    assert [point["name"] for point in found["points"]] == ["2"]
    reason = "dataset is b and a (name runs over the same questions and the same graph)"
    assert [(each["name"], each["reason"]) for each in found["left_out"]] == [(name, reason) for name in ("0", "1")]
    assert found["notes"] == [f"2 configurations left out, not comparable with 3: {reason}"]


CUSTOM = ("dataset=custom", "dataset.triples=graph.tsv", "dataset.meta=[source]", "evaluation.bootstrap_resamples=1000")


def write_family(questions: int, *, sources: int = 0, text: str = "Who is the child of") -> None:
    """A graph of parents with one child each, and a question about each parent."""
    Path("graph.tsv").write_text("".join(f"P{number}\tchild\tC{number}\n" for number in range(questions)))
    lines = [
        {
            "id": f"q{number}",
            "question": f"{text} P{number}?",
            "topic_entities": [f"P{number}"],
            "answers": [f"C{number}"],
            **({"source": f"s{number % sources}"} if sources else {}),
        }
        for number in range(questions)
    ]
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, lines)))


def run_family(kgqa: Kgqa, folder: str, *words: str) -> None:
    ran = kgqa("evaluate", *CUSTOM, "dataset.questions=questions.jsonl", f"run.dir={folder}", *words)
    assert ran.code == 0, ran.err


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


def test_questions_without_a_source_are_independent(kgqa: Kgqa) -> None:
    write_family(6)
    run_family(kgqa, "good", "llm=oracle")
    run_family(kgqa, "bad", "method=cot", "llm=similarity")
    found = figures(kgqa, "good", "bad")
    assert (found["cluster"], found["points"][0]["sources"]) == (None, 6)
    said = kgqa("compare", "good", "bad", "cluster=source").sentence
    assert said == "cluster=source: no question has this field in `meta`, which has no field"


def test_the_same_ids_over_other_texts_are_refused(kgqa: Kgqa) -> None:
    write_family(6)
    run_family(kgqa, "one", "llm=oracle")
    write_family(6, text="Name a child of")
    run_family(kgqa, "two", "llm=oracle")
    said = kgqa("compare", "one", "two").sentence
    remedy = "(name runs over the same questions and the same graph)"
    reason = f"cannot be compared: question q0 has a different text in each {remedy}"
    assert said == f"one:0 and two:0 {reason}"
    with pytest.raises(UserError, match=f"^.*one and .*two {re.escape(reason)}$"):
        open_run("one").flips("two")


def test_the_same_questions_with_other_gold_answers_are_refused(kgqa: Kgqa) -> None:
    write_family(6)
    run_family(kgqa, "old", "llm=oracle")
    corrected = Path("questions.jsonl").read_text().replace('"C2"', '"C3"')
    Path("questions.jsonl").write_text(corrected)
    run_family(kgqa, "new", "llm=oracle")
    said = kgqa("compare", "old", "new").sentence
    assert said.startswith("old:0 and new:0 cannot be compared: question q2 has other gold answers in each")
    assert "(run the commands of both again: " in said, "which one is older does not say whose answers are"
    report = kgqa("report", "old", "new").sentence
    assert report == said.replace("old:0 and new:0 cannot be compared", "old and new cannot be shown on one page")
    run_family(kgqa, "old", "llm=oracle")
    assert kgqa("compare", "old", "new").code == 0, "the old run was scored by the new gold answers"
    assert kgqa("report", "old", "new").code == 0


@pytest.mark.parametrize(
    ("words", "differs"),
    [
        ("dataset.triples=3000", "graph is "),
        ("dataset.name=mine", "dataset is synthetic and mine"),
        ("evaluation.strip_accents=false", "evaluation.strip_accents is True and False (run one again"),
    ],
)
def test_runs_of_different_circumstances_are_refused(words: str, differs: str, runs: Path, kgqa: Kgqa) -> None:
    evaluate(kgqa, "other", "llm=oracle", "run.limit=10", words)
    said = kgqa("compare", runs / "good", "other").sentence
    assert said.startswith(f"good:0 and other:0 cannot be compared: {differs}")
    assert said.endswith("needs no new calls)" if "evaluation" in words else "the same questions and the same graph)")
    with pytest.raises(UserError, match=f"cannot be compared: {re.escape(differs)}"):
        open_run(runs / "good").flips("other")


def test_a_key_whose_default_follows_the_dataset_has_a_column(kgqa: Kgqa) -> None:
    """ArG's depth follows the published dataset whose name is in the path of the questions."""
    Path("facts.tsv").write_text("Ann\tknows\tBo\n")
    for name in ("mine", "webqsp"):
        row = {"id": "q", "question": "Whom does Ann know?", "topic_entities": ["Ann"], "answers": ["Bo"]}
        Path(f"{name}.jsonl").write_text(json.dumps(row))
        words = ("dataset=custom", "dataset.triples=facts.tsv", f"dataset.questions={name}.jsonl", f"run.dir={name}")
        assert kgqa("evaluate", "method=arg", "llm=oracle", *words).code == 0
    shown = kgqa("compare", "mine", "webqsp").out
    assert re.search(r"run:# +questions +depth +Hits@1", shown)
    assert re.search(r"mine:0 +mine.jsonl +4 ", shown)
    assert re.search(r"webqsp:0 +webqsp.jsonl +2 ", shown)


def test_an_unfinished_run_is_reported(runs: Path, kgqa: Kgqa) -> None:
    shutil.copytree(runs / "bad", "bad")
    assert "not complete" not in kgqa("compare", runs / "good", "bad").out
    Path("bad", "summary.json").unlink()
    note = "bad is not complete: only the "
    assert note in kgqa("compare", runs / "good", "bad").out
    question = json.loads(kgqa("losses", "bad", "json=true").out)["groups"][0]["example"]
    for words in (("losses", "bad"), ("show", "bad", question), ("export", "bad", "format=otel"), ("report", "bad")):
        assert note in kgqa(*words).out, words
    assert note in Path("bad", "report.html").read_text()


def test_an_unfinished_sweep_says_what_is_counted(sweep: Path, kgqa: Kgqa) -> None:
    shutil.copytree(sweep, "part")
    Path("part", "summary.json").unlink()
    note = "only the 20 questions in its finished shards are counted, in each of 24 configurations."
    assert note in kgqa("compare", "part").out


def test_configurations_that_have_not_begun_are_left_out_with_a_note(kgqa: Kgqa) -> None:
    kgqa("sweep", "method=srp,cot", "dataset.split=test,train", "llm=oracle", "run.limit=4", "run.dir=part")
    Path("part", "summary.json").unlink()
    Path("part", "traces", "shard-00001.parquet").unlink()  # that of the questions for training
    found = kgqa("compare", "part", "base=best")
    assert "2 configurations of part have no finished question yet: they are left out" in " ".join(found.out.split())
    compared = figures(kgqa, "part")
    assert [compared["base"]["point"], *(each["point"] for each in compared["points"])] == [0, 2]
    kgqa("sweep", "method=cot", "dataset.split=test,train", "llm=oracle", "run.limit=4", "run.dir=one")
    Path("one", "traces", "shard-00001.parquet").unlink()
    only = kgqa("compare", "one").sentence
    assert only == "one has finished questions of one of 2 configurations: name another run to compare it with"
    unknown = "these runs have no configuration of this name with a finished question"
    assert f"base=1: {unknown}" in kgqa("compare", "part", "base=1").sentence
    with pytest.raises(UserError, match=f"other_configuration=1: {unknown}"):
        open_run("part").flips("part", 0, 1)


def test_runs_without_a_common_question_are_refused(runs: Path, kgqa: Kgqa) -> None:
    for run, shards in (("good", "01"), ("bad", "23")):
        shutil.copytree(runs / run, run)
        for shard in Path(run, "traces").glob("*.parquet"):
            if shard.stem[-1] not in shards:
                shard.unlink()
    said = kgqa("compare", "good", "bad").sentence
    assert (
        said == "good:0 and bad:0 cannot be compared: they have no question in common "
        "(name runs over the same questions and the same graph)"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("GOOD", "has a single configuration: name another run to compare it with"),
        ("GOOD nowhere", "nowhere is not a run folder: it does not exist (see kgqa ls)"),
        ("flips=1", "name what to read: kgqa compare RUN [RUN …] [key=value] …"),
        (
            "GOOD BAD base=bad:1",
            "base=bad:1: these runs have no configuration of this name with a finished question. They have good:0, b",
        ),
        ("GOOD BAD score=hits_at_2", "there is no score=hits_at_2. Known: hits_at_1, "),
        ("GOOD BAD score=hits_at1", "there is no score=hits_at1. Did you mean 'hits_at_1'? Known: hits_at_1, "),
        ("GOOD BAD configuration=1-3", "configuration=1-3 is no list: name each one, as in configuration=[1,2,3]"),
        ("GOOD BAD configuration=0:99", "configuration=0:99 is no list: name each one, as in configuration=[0,1,…,99]"),
        ("GOOD BAD score=rouge_l", "good:0 and bad:0 have no question in common with the score rouge_l"),
        ("GOOD BAD correction=none", "correction='none' is wrong: input should be 'holm' or 'bh'"),
        ("GOOD BAD cluster=kind", "cluster=kind: no question has this field in `meta`, which has "),
        ("GOOD BAD top=0", "top=0 is wrong: input should be greater than 0"),
        (
            "GOOD BAD flips=good:1",
            "flips=good:1: these runs have no configuration of this name with a finished question. They have good:0, b",
        ),
        ("GOOD BAD flips=good", "flips=good is the base itself: name the configuration to compare with it"),
        ("GOOD BAD noise.questions=x", "noise.questions='x' is wrong: input should be a valid integer"),
        ("GOOD BAD noise=3", "noise=3 is wrong: "),
        ("GOOD BAD corection=bh", "unknown key 'corection'. Did you mean 'correction'?"),
        ("GOOD BAD +more=1", "unknown key 'more'."),
        ("GOOD BAD +xyz=1", "unknown key 'xyz'. Known: base, configuration, score, "),
        ("GOOD BAD method=srp", "this command has no group 'method'. --help lists its keys."),
        ("GOOD BAD json=maybe", "json=maybe is wrong: input should be true or false"),
    ],
)
def test_mistakes(words: str, sentence: str, runs: Path, kgqa: Kgqa) -> None:
    named = {"GOOD": runs / "good", "BAD": runs / "bad"}
    assert sentence in kgqa("compare", *(named.get(word, word) for word in words.split())).sentence


class Shaky(FixedReply):
    """Always knows some questions, never knows others, and answers every fifth one at random."""

    def __init__(self, world: SyntheticWorld) -> None:
        super().__init__()
        examples = list(world.examples(lambda _: None))
        self._gold = {example.question.text: example.gold.answers[0].name for example in examples}
        self._index = {example.question.text: index for index, example in enumerate(examples)}
        self._saying = threading.Lock()
        self.said: dict[str, list[str]] = defaultdict(list)
        """The replies to each question, in order."""

    def text(self, asked: bytes) -> str:
        prompt = json.loads(asked)["messages"][-1]["content"]
        question = max((text for text in self._gold if text in prompt), key=len)
        index = self._index[question]
        with self._saying:
            turn = len(self.said[question])
            knows = Random(f"{index} {turn}").random() < 0.5 if self.is_shaky(index) else index % 2 == 0
            self.said[question].append(self._gold[question] if knows else "nobody knows")
        return f"{{{self.said[question][turn]}}}"

    @staticmethod
    def is_shaky(index: int) -> bool:
        return index % 5 == 0

    def turns(self, before: int, after: int) -> Sequence[int]:
        """Return how the score of each question changed between two of its turns."""
        right = ([said == self._gold[text] for said in of] for text, of in self.said.items())
        return [turns[after] - turns[before] for turns in right if len(turns) > after]


@pytest.mark.exhaustive
def test_differences_within_what_a_second_run_changes_are_noise(kgqa: Kgqa) -> None:
    model = Shaky(default(SyntheticWorld, triples=2000, questions=100))
    world = ("dataset.questions=100",)
    with serving(model) as url:
        words = (*world, "method=cot", "llm=endpoint", url)
        evaluate(kgqa, "run", *words)
        evaluate(kgqa, "twin", *words)
        evaluate(kgqa, "oracle", *world, "llm=oracle")
        found = figures(kgqa, "run", "twin", "oracle", "noise.questions=60")
        again = kgqa("compare", "run", "twin", "oracle", "noise.questions=60")
        assert model.requests == 260, "the noise run asks its sample anew, and once"
        evaluate(kgqa, "reusing", *words, "run.reuse=[run]")
        figures(kgqa, "reusing", "twin", "noise.questions=10")
        assert model.requests == 270, "and reuses nothing, whatever the base did"

    twin, oracle = found["points"]
    turns = model.turns(0, 1)
    assert twin["difference"] == pytest.approx(sum(turns) / 100)
    assert (twin["won"], twin["lost"]) == (turns.count(1), turns.count(-1))
    assert twin["difference"] != 0
    assert abs(twin["difference"]) <= twin["noise"]
    assert (twin["verdict"], oracle["verdict"]) == ("noise", "better")

    sample = model.turns(0, 2)
    changed = sum(map(abs, sample))
    assert 0 < changed < 12
    noise = found["noise"]
    assert (noise["questions"], noise["calls_repeated"], noise["calls_unrepeated"]) == (60, 60, 0)
    assert noise["calls_differing"] == changed
    assert noise["absolute"] == pytest.approx(changed / 60)
    assert noise["net"] == pytest.approx(sum(sample) / 60)
    assert noise["interval"][0] <= noise["net"] <= noise["interval"][1]

    text = " ".join(again.out.split())
    assert f"Of 60 repeated calls, {changed} returned a different text ({changed / 60:.1%})" in text
    assert f"differences of up to {100 * twin['noise']:.1f} percentage points are noise" in text
    assert "nothing to run" in again.err
    assert kgqa("score", "run/noise/point-0-questions-60").code == 0, "it is a run folder like any other"


def test_a_deterministic_model_has_no_noise(runs: Path, kgqa: Kgqa) -> None:
    for name in ("good", "bad"):
        shutil.copytree(runs / name, name)
    shown = kgqa("compare", "good", "bad", "noise.questions=15")
    assert "noise: 15 questions of good:0 were run again" in shown.out
    assert shown.out.splitlines()[-1] == "the model is deterministic, and its noise is 0"
    found = figures(kgqa, "good", "bad", "noise.questions=15")
    assert (found["noise"]["absolute"], found["points"][0]["noise"], found["points"][0]["verdict"]) == (0, 0, "worse")


def test_no_more_questions_are_run_again_than_there_were(runs: Path, kgqa: Kgqa) -> None:
    for name in ("good", "bad"):
        shutil.copytree(runs / name, name)
    found = figures(kgqa, "good", "bad", "base=bad:0", "noise.questions=50")
    assert found["noise"]["questions"] == 40


def test_noise_is_not_measured_on_another_model(runs: Path, kgqa: Kgqa) -> None:
    for name in ("good", "bad"):
        shutil.copytree(runs / name, name)
    saved = Path("good/run.yaml")
    saved.write_text(saved.read_text().replace("model: oracle(error_rate=0.1", "model: oracle(error_rate=0.2"))
    said = kgqa("compare", "good", "bad", "noise.questions=15").sentence
    assert "began with the model oracle(error_rate=0.2,malformed_rate=0), but now it is oracle(error_rate=0.1" in said
    assert not list(Path("good/noise").rglob("*.parquet"))


def test_the_gain_is_printed_for_each_type_of_question(kgqa: Kgqa, runs: Path) -> None:
    """The types are read from gold SPARQL, and each gain is that of the traces."""
    words = ("compare", str(runs / "good"), str(runs / "bad"))
    shown = kgqa(*words, "by=query_type")
    assert "gain" in shown.out
    groups = json.loads(kgqa(*words, "by=query_type", "json=true").out)["groups"]
    assert {each["group"] for each in groups} == {"linear", "composition", "conjunction", "comparative", "superlative"}
    base, other = (
        pl.read_parquet(runs / name / "traces/*.parquet", columns=["question_id", "query_type", "hits_at_1"])
        for name in ("good", "bad")
    )
    both = base.join(other, on="question_id")
    for each in groups:
        rows = both.filter(query_type=each["group"])
        gain = (rows["hits_at_1_right"] - rows["hits_at_1"]).mean()
        assert (each["questions"], each["difference"]) == (rows.height, pytest.approx(gain))
    assert sum(each["questions"] for each in groups) == 40


def test_the_gain_is_printed_for_the_configurations_of_the_table_above(sweep: Path, kgqa: Kgqa) -> None:
    shown = kgqa("compare", str(sweep), "base=best", "by=hops", "top=1").out
    _, table, groups = re.split(r"─{20,}", shown)
    numbers = {line.split()[0] for line in groups.splitlines() if re.match(r" *\d+  ", line)}
    compared = [line.split()[0] for line in table.splitlines()[1:3]]
    assert numbers == {compared[1]}, "the first one is the base"
    assert "left out, as above" in " ".join(groups.split())


def test_the_gain_by_a_field_that_the_breakdown_shows(runs: Path, kgqa: Kgqa) -> None:
    groups = figures(kgqa, runs / "good", runs / "bad", "by=mediators")["groups"]
    (summary,) = json.loads((runs / "bad" / "summary.json").read_text())["points"]
    shown = {group["value"]: group["questions"] for group in summary["breakdown"]["mediators"]}
    assert {each["group"]: each["questions"] for each in groups} == shown


def test_an_unknown_property_is_named_with_those_that_there_are(kgqa: Kgqa, runs: Path) -> None:
    refused = kgqa("compare", str(runs / "good"), str(runs / "bad"), "by=query_typ")
    assert "Did you mean" in refused.err
    assert "query_type, type, level, hops, mediators" in refused.err


def test_a_run_that_was_scored_again_is_named(runs: Path, kgqa: Kgqa) -> None:
    for name in ("good", "bad"):
        shutil.copytree(runs / name, name)
    said = "new scores, which are in its summary; a comparison uses those of the run"
    assert said not in kgqa("compare", "good", "bad").out
    file = Path("bad/summary.json")
    summary = json.loads(file.read_text())
    del summary["digest"]
    summary["points"][0]["hits_at_1"] += 0.1
    RunFolder(Path("bad")).write_summary(summary)
    shown = kgqa("compare", "good", "bad")
    assert f"bad {said}" in shown.out
    assert f"good {said}" not in shown.out


def test_a_configuration_over_other_questions_is_said_to_be_incomparable(kgqa: Kgqa) -> None:
    words = ("llm=oracle", "run.limit=4", "method=cot", "budget.max_llm_calls=4,5", "dataset.seed=7,8", "run.dir=run")
    assert kgqa("sweep", *WORLD, *words).code == 0
    refused = kgqa("compare", "run", "flips=1").sentence
    assert refused.startswith("flips=1 cannot be compared with the base 0: graph is ")
    assert refused.endswith("base= takes another one")
    shown = " ".join(kgqa("compare", "run", "base=best").out.split())
    assert "the highest score on the questions that all compared configurations answered" in shown


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


def test_p_is_printed_on_eighty_columns(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ("method=srp,arg", "method.depth=1,2", "method.beam_width=1,2", "llm=oracle", "run.limit=4", "run.dir=run")
    assert kgqa("sweep", *WORLD, *words).code == 0
    lines = kgqa("compare", "run").out.splitlines()
    headings = next(line for line in lines if "verdict" in line)
    assert " p " in headings
    assert max(map(len, lines[:12])) <= 80


def test_a_comparison_names_the_configurations_whose_questions_met_a_limit(kgqa: Kgqa) -> None:
    words = ("method=srp", "method.depth=1,2", *WORLD, "llm=oracle", "run.limit=8", "run.dir=run")
    kgqa("sweep", *words, "budget.max_llm_calls=2")
    said = " ".join(kgqa("compare", "run").out.split())
    assert re.search(r"met a limit of budget or of the method, which may decide their scores: [\d.]+ % in", said)
    kgqa("sweep", *words, "run.restart=true")
    assert "met a limit" not in kgqa("compare", "run").out
