"""`kgqa reproduce`: all published rows in one run, each with its label."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest
import yaml

from pipeline.cli.main import main
from pipeline.evaluation.statistics import wilson
from pipeline.papers import published
from pipeline.papers.published import published_figures
from tests.cli.conftest import Kgqa

pytestmark = pytest.mark.exhaustive

SMALL = (
    *("llm=oracle", "llm.error_rate=0.15", "evaluation.bootstrap_resamples=100"),
    "reproduce.stand_in=['dataset=synthetic','dataset.triples=2000','run.limit=8']",
)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small reproduction."""
    folder = tmp_path_factory.mktemp("reproduced") / "run"
    words = ["scale=smoke", "reproduce.seeds=[0]", *SMALL, f"run.dir={folder}", f"table={folder}/tables.md"]
    assert main(["reproduce", *words]) == 0
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
    costs = "| row | dataset | calls | tokens | seconds | seconds of a retry, with queues |"
    assert f"{costs} halted, recovered | incorrect, recovered |" in efficiency
    assert "| graph-cot (re-implementation) | grbench_amazon (run on another dataset) |" in efficiency
    assert "| r3 (oracle) |" in efficiency
    assert {row["row"] for row in written["efficiency"]} >= {"r3", "r3 (oracle)", "graph-cot (re-implementation)"}
    assert "mean use of this machine in this run: CPU " in text
    assert (
        "webqsp, cwq, grailqa, metaqa, grbench_amazon, grbench_biomedical, grbench_goodreads: run on synthetic "
        in shown.out
    )
    assert len(shown.out.splitlines()) <= 38
    assert f"{len(published_figures())} rows of published figures: " in shown.out
    assert "run/reproduction.md has all " in shown.out


def tables_in(text: str) -> dict[str, list[list[str]]]:
    """Return the rows of the tables of `reproduction.md`, by the beginnings of their titles."""
    sections = [section.partition("\n") for section in text.split("\n## ")[1:]]
    return {
        title.partition(" (answered by ")[0]: [
            [cell.strip() for cell in line.strip("|").split(" | ")]
            for line in body.splitlines()
            if line.startswith("| ") and not line.startswith(("| row |", "| --- |"))
        ]
        for title, _, body in sections
    }


def published_lines() -> Iterator[tuple[str, str, str, str, float | str]]:
    """Yield table, row, dataset, metric and number of each cell of `published.yaml`, as the file itself has them."""
    file = Path(published.__file__).with_name("published.yaml")
    for table in yaml.safe_load(file.read_text("utf-8")):
        for row in table["rows"]:
            name = " ".join(filter(None, [row["method"], row.get("variant")]))
            name += f" ({row['model']})" if "model" in row else ""
            for reading in row["readings"].values() if "readings" in row else [None]:
                for column, value in zip(table["columns"], row["values"], strict=True):
                    if value is not None:
                        dataset = " ".join(filter(None, [column.get("dataset"), column.get("subset")])) or "–"
                        metric = column.get("metric") or table["metric"]
                        number = next(iter(value.values())) if isinstance(value, dict) else value
                        yield (
                            f"{table['paper']}: {table['table']}",
                            ", ".join(filter(None, [name, reading])),
                            dataset,
                            metric,
                            number,
                        )


def is_line(cells: Sequence[str], row: str, dataset: str, metric: str, value: float) -> bool:
    shown = re.sub("[≈>]|–.*", "", cells[3])
    return (
        cells[0].partition(" [")[0] == row
        and cells[1].removesuffix(" (run on another dataset)") == dataset
        and cells[2] == metric
        and float(shown) == pytest.approx(value, abs=0.5)
    )


def test_every_published_row_has_a_figure_or_a_reason(reproduced: Path) -> None:
    tables = tables_in((reproduced / "reproduction.md").read_text("utf-8"))
    costs = tables.pop("R3-Cycle: efficiency and recovery, per question")
    left = {title: list(lines) for title, lines in tables.items()}
    figure, reason = re.compile(r"[0-9][0-9.]*\*?( [0-9.]+–[0-9.]+\*?)?"), re.compile(r"[a-z].*[a-z]")
    figures = 0
    for table, row, dataset, metric, value in published_lines():
        line = next(each for each in left[table] if is_line(each, row, dataset, metric, float(value)))
        left[table].remove(line)
        ours = line[5]
        assert figure.match(ours) or reason.search(ours), line
        assert figure.match(line[4]) or line[4] == "–", line
        figures += figure.match(ours) is not None
    assert not any(left.values()), "no line is in no paper"
    assert figures > 200
    # A reason that names another place is true.
    elsewhere = [line for lines in tables.values() for line in lines if line[5] == "in the table of efficiency"]
    assert {line[0].partition(" (")[0] for line in elsewhere} == {"Graph-CoT", "R3-Cycle"}
    assert {line[0] for line in costs} >= {"graph-cot (re-implementation)", "r3", "r3 (oracle)"}
    assert not [line for line in costs if not all(figure.match(cell) or reason.search(cell) for cell in line[1:])]
    of_the_run = [line for lines in tables.values() for line in lines if line[5] == "of the whole run, at the top"]
    assert {line[2] for line in of_the_run} == {"CPU %", "GPU %"}
    assert "mean use of this machine in this run: CPU " in (reproduced / "reproduction.md").read_text("utf-8")


def test_a_file_has_the_tables(reproduced: Path) -> None:
    assert (reproduced / "tables.md").read_text().count("| --- |") > 10


def test_costs_are_means_of_the_traces_in_their_units(reproduced: Path) -> None:
    written = json.loads((reproduced / "reproduction.json").read_text())["figures"]
    rows = pl.read_parquet(reproduced / "traces/*.parquet")
    of_costs = [line for line in written if line["cost"]]
    assert len(of_costs) == 24
    counted = [line for line in of_costs if line["metric"] != "seconds"]
    assert len(counted) > 12
    for line in counted:
        mean = rows.filter(method=line["preset"])[line["cost"]].mean()
        assert line["measured"]["mean"] == pytest.approx(mean)
        assert line["strict"] is None


def test_a_share_of_hits_has_wilsons_interval(reproduced: Path) -> None:
    written = json.loads((reproduced / "reproduction.json").read_text())["figures"]
    of_hops = [line for line in written if "hop" in (line["subset"] or "")]
    assert any(line["measured"] for line in of_hops), "the questions with one hop, with two, …"
    strict = [line["strict"] for line in written if line["strict"] and line not in of_hops]
    assert any(each["mean"] in (0, 100) for each in strict), "else the bootstrap would do"
    for each in strict:
        low, high = wilson(each["mean"] / 100, 8, confidence=0.95)
        assert (each["low"], each["high"]) == (pytest.approx(100 * low), pytest.approx(100 * high))


def test_a_simulated_model_takes_no_seconds(reproduced: Path) -> None:
    written = json.loads((reproduced / "reproduction.json").read_text())
    timed = [line for line in written["figures"] if line["metric"] == "seconds" and line["preset"]]
    assert {line["because"] for line in timed} >= {"a simulated model takes no seconds"}
    assert {line["measured"] for line in timed} == {None}
    assert {row["seconds"] for row in written["efficiency"]} == {None}


def test_our_numbers_are_the_scores_of_the_configurations(reproduced: Path) -> None:
    written = json.loads((reproduced / "reproduction.json").read_text())["figures"]
    rows = pl.read_parquet(reproduced / "traces/*.parquet")
    for method in ("srp", "tog", "parog"):
        mean = 100 * rows.filter(method=method)["hits_at_1"].mean()  # type: ignore[operator]
        of_preset = [line for line in written if line["preset"] == method and line["strict"]]
        assert of_preset
        assert {round(line["strict"]["mean"], 6) for line in of_preset} == {round(mean, 6)}


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
    assert reasons == {"no dataset"}


def test_rows_of_some_methods_run_with_keys_of_their_own(kgqa: Kgqa, tmp_path: Path) -> None:
    words = ("reproduce.methods=[arg,cot]", "method.probabilities=hard", *SMALL, "run.dir=run")
    shown = kgqa("reproduce", *words)
    assert shown.code == 0, shown.err
    note = "method.probabilities=hard: not as published, in the rows of each method with this key"
    assert note in shown.out
    assert note in (tmp_path / "run/reproduction.md").read_text()
    written = json.loads((tmp_path / "run/reproduction.json").read_text())["figures"]
    measured = {line["preset"] for line in written if line["strict"]}
    assert {"arg", "arg_width_1", "cot"} <= measured
    assert not {"srp", "tog", "readi"} & measured
    left_out = {line["preset"] for line in written if line["because"] == "left out by reproduce.methods"}
    assert "srp" in left_out
    run = json.loads(kgqa("ls", "run", "json=true").out)["runs"][0]
    assert run["configurations"] == len({line["preset"] for line in written if line["strict"]})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("scale=full", "no dataset is available"),
        ("scale=large", "reproduce.scale='large' is wrong"),
        ("reproduce.dataset=x", "unknown key 'reproduce.dataset'"),
        ("reproduce.seeds=[]", "reproduce.seeds"),
        ("reproduce.methods=[tok]", "no published row is run by tok. Known: arg, cot, "),
        ("reproduce.methods=[srp] method.width=3", "method.width is a key of "),
        ("experiment=srp", "each row of the papers' tables has its own experiment, so experiment=srp is not taken"),
        ("method=srp", "reproduce.methods=[…] runs the rows of some methods only"),
        ("run.seed=3", "reproduce.seeds=[…] names the seeds"),
        ("dataset=webqsp", "reproduce.datasets.…=[…] names the data of each"),
        ("method.probabilties=hard", "unknown key 'method.probabilties'"),
    ],
)
def test_mistakes(words: str, sentence: str, kgqa: Kgqa) -> None:
    assert sentence in kgqa("reproduce", *words.split()).sentence
