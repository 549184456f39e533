"""`kgqa reproduce`: all published rows in one run, each with its label."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from pipeline.cli.main import main
from pipeline.evaluation.statistics import wilson
from pipeline.papers.published import published_figures
from tests.cli.conftest import Kgqa

SMALL = (
    *("llm=oracle", "llm.error_rate=0.15", "evaluation.bootstrap_resamples=100"),
    "reproduce.stand_in=['dataset=synthetic','dataset.triples=2000','run.limit=8']",
)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small reproduction."""
    folder = tmp_path_factory.mktemp("reproduced") / "run"
    assert main(["reproduce", "scale=smoke", "reproduce.seeds=[0]", *SMALL, f"run.dir={folder}"]) == 0
    return folder


def test_every_published_number_is_next_to_the_reproduced_one(kgqa: Kgqa, tmp_path: Path) -> None:
    shown = kgqa("reproduce", "scale=smoke", *SMALL, "run.dir=run")
    assert shown.code == 0, shown.err
    written = json.loads((tmp_path / "run/reproduction.json").read_text())
    assert len(written["figures"]) == len(published_figures())
    for figure, line in zip(published_figures(), written["figures"], strict=True):
        assert (line["value"], line["method"], line["dataset"]) == (figure.value, figure.method, figure.dataset)
        runs = figure.preset and figure.score and figure.dataset and figure.subset is None
        if runs and figure.score != "rouge_l":
            assert line["strict"] is not None, figure
            assert line["gap"] is None or line["gap"] == pytest.approx(line["measured"]["mean"] - figure.value)
    text = (tmp_path / "run/reproduction.md").read_text()
    assert text.count("(answered by oracle, no language model)") == len(
        {(f.paper, f.table) for f in published_figures()}
    )
    assert text.index("| Hits@1 | as its paper counts |") > 0
    efficiency = text.partition("## R3-Cycle: efficiency and recovery, per question")[2]
    assert (
        "| row | dataset | calls | tokens | seconds of a retry | halted, recovered | incorrect, recovered |"
        in efficiency
    )
    assert "| graph-cot (re-implementation) | grbench_amazon (run on another dataset) |" in efficiency
    assert "| r3 (oracle) |" in efficiency
    assert {row["row"] for row in written["efficiency"]} >= {"r3", "r3 (oracle)", "graph-cot (re-implementation)"}
    assert "mean use of this machine in this run: CPU " in text
    assert (
        "webqsp, cwq, grailqa, metaqa, grbench_amazon, grbench_biomedical, grbench_goodreads: run on synthetic "
        in shown.out
    )
    assert len(shown.out.splitlines()) <= 38
    assert f"{len(published_figures())} published figures: " in shown.out
    assert "run/reproduction.md has all " in shown.out


def test_a_share_of_hits_has_wilsons_interval(reproduced: Path) -> None:
    written = json.loads((reproduced / "reproduction.json").read_text())["figures"]
    strict = [line["strict"] for line in written if line["strict"]]
    assert any(each["mean"] in (0, 100) for each in strict), "else the bootstrap would do"
    for each in strict:
        low, high = wilson(each["mean"] / 100, 8)
        assert (each["low"], each["high"]) == (pytest.approx(100 * low), pytest.approx(100 * high))


def test_our_numbers_are_the_scores_of_the_configurations(reproduced: Path) -> None:
    written = json.loads((reproduced / "reproduction.json").read_text())["figures"]
    rows = pl.read_parquet(reproduced / "traces/*.parquet")
    for method in ("srp", "tog", "parog"):
        mean = 100 * rows.filter(method=method)["hits_at_1"].mean()  # type: ignore[operator]
        of_preset = [line for line in written if line["preset"] == method and line["strict"]]
        assert of_preset
        assert {round(line["strict"]["mean"], 6) for line in of_preset} == {round(mean, 6)}


@pytest.mark.exhaustive
def test_several_seeds_give_the_interval(kgqa: Kgqa, tmp_path: Path) -> None:
    datasets = "reproduce.datasets.webqsp=['dataset=synthetic','dataset.triples=2000','run.limit=8']"
    shown = kgqa("reproduce", "scale=full", "reproduce.seeds=[0,1]", datasets, *SMALL, "run.dir=run")
    assert shown.code == 0, shown.err
    written = json.loads((tmp_path / "run/reproduction.json").read_text())["figures"]
    srp = next(line for line in written if line["method"] == "SRP" and line["dataset"] == "webqsp")
    rows = pl.read_parquet(tmp_path / "run/traces/*.parquet").filter(method="srp")
    seeds = rows.group_by("point").agg(pl.col("hits_at_1").mean())["hits_at_1"]
    assert len(seeds) == 2
    assert srp["strict"]["mean"] == pytest.approx(100 * seeds.mean())  # type: ignore[operator]
    reasons = {line["because"] for line in written if line["dataset"] == "cwq" and line["preset"]}
    assert reasons == {"no dataset", "in the table of efficiency"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("scale=full", "no dataset is available"),
        ("scale=large", "reproduce.scale='large' is wrong"),
        ("reproduce.dataset=x", "unknown key 'reproduce.dataset'"),
        ("reproduce.seeds=[]", "reproduce.seeds"),
    ],
)
def test_mistakes(words: str, sentence: str, kgqa: Kgqa) -> None:
    assert sentence in kgqa("reproduce", words).sentence
