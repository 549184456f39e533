"""The efficiency of R3-Cycle: calls, tokens, seconds of the retry, and the use of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from pipeline.papers.efficiency import HEADINGS, Efficiency, efficiency, machine_load
from pipeline.papers.published import published_figures
from pipeline.papers.reproduction import PlannedFigure
from pipeline.traces.folder import RunFolder


def test_a_row_has_the_costs_of_its_configuration_and_the_seconds_of_its_retries(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shared = ["dataset.triples=2000", "run.limit=40", "llm=oracle", "llm.error_rate=0.3", f"run.dir={folder}"]
    words = {preset: (f"experiment={preset}", *shared) for preset in ("graph_cot", "r3")}
    configurations = list(words.values())
    summaries = execute([Configuration(each, config.compose(each)) for each in configurations], Console(quiet=True))
    figures = {each.preset: each for each in published_figures() if each.table == "main" and each.paper == "R3-Cycle"}
    planned = [PlannedFigure(figures[preset], (each,), "", substituted=True) for preset, each in words.items()]
    untimed = efficiency(planned, RunFolder(folder), summaries, configurations, timed=[False, False])
    assert [row.cells()[4] for row in untimed] == ["not known", "not known"]
    assert [row.cells()[5].partition(" (")[0] for row in untimed] == ["no retry", "not known"]
    plain, retried = efficiency(planned, RunFolder(folder), summaries, configurations, timed=[True, True])
    assert (plain.row, retried.row) == ("graph-cot (re-implementation)", "r3")
    assert plain.retry_s is None
    assert plain.recovered == {}
    assert retried.retry_s is not None
    assert retried.retry_s > 0
    assert 0 < retried.retried < 40
    assert retried.recovered["incorrect"] == (
        summaries[1].score("recovered_incorrect"),
        summaries[1].scores["recovered_incorrect"].questions,
    )
    assert retried.calls == summaries[1].counters["llm_calls"] / 40
    assert retried.calls > plain.calls
    assert retried.tokens > plain.tokens


def test_a_row_is_printed_with_the_number_of_its_retries() -> None:
    costs = {"calls": 9.44, "tokens": 7000.4, "seconds": 0.123}
    row = Efficiency(row="r3", dataset="amazon", **costs, retry_s=1.5, retried=7, recovered={"halted": (0.25, 4)})
    assert row.cells() == ("r3", "amazon", "9.4", "7,000", "0.12", "1.50 (of 7)", "25.0 % of 4", "none incorrect")
    assert len(HEADINGS) == len(row.cells())
    plain = Efficiency(row="r3", dataset="amazon", **costs, retry_s=None, retried=0, recovered={})
    assert plain.cells()[5:] == ("no retry", "none halted", "none incorrect")


def test_the_use_of_the_machine_is_a_share_and_gpus_are_read_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 40\necho 60\n", encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with machine_load() as load:
        sum(number * number for number in range(2_000_000))
    assert load.gpu == 50
    assert load.cpu is not None
    assert 0 < load.cpu <= 100
    assert str(load).endswith("GPU 50 %")


def test_a_machine_without_a_gpu_has_no_figure_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with machine_load() as load:
        pass
    assert load.gpu is None
    assert str(load).endswith("GPU not known")
