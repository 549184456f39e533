"""The gain that `kgqa compare` prints for each group of questions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from scipy.stats import binomtest

from tests.cli.compare.support import figures
from tests.cli.conftest import Kgqa


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
        changes = (rows["hits_at_1_right"] - rows["hits_at_1"]).to_list()
        won, lost = changes.count(1), changes.count(-1)
        assert (each["won"], each["lost"]) == (won, lost)
        assert each["p_value"] == pytest.approx(binomtest(won, won + lost).pvalue if won + lost else 1)
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
