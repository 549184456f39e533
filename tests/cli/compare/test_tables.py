"""The tables of `kgqa compare` on terminals of any width."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.compare.support import WORLD, figures
from tests.cli.conftest import Kgqa
from tests.support import sampled


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


def test_a_narrow_terminal_shows_fewer_columns(runs: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    *table, note, _ = kgqa("compare", runs / "good", runs / "bad").out.splitlines()
    assert max(map(len, table)) <= 60
    assert note.rstrip() == 'too wide, see table=FILE: "tokens", "calls", "flips"'


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


def test_p_is_printed_on_eighty_columns(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ("method=srp,arg", "method.depth=1,2", "method.beam_width=1,2", "llm=oracle", "run.limit=4", "run.dir=run")
    assert kgqa("sweep", *WORLD, *words).code == 0
    lines = kgqa("compare", "run").out.splitlines()
    headings = next(line for line in lines if "verdict" in line)
    assert " p " in headings
    assert max(map(len, lines[:12])) <= 80
