"""Runs whose graph server breaks the protocol: every question gets its answers elsewhere, or fails with a reason."""

from __future__ import annotations

import io
import re
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.config import default
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from pipeline.simulation.world import SyntheticWorld
from pipeline.traces.folder import RunFolder
from pipeline.types import Triple
from tests.kg.lying_server import MODES, LyingGraph, lying
from tests.support import sampled

QUESTIONS = 6
HONEST = 16
"""Queries that are answered truly: those that check the servers at the start."""


@pytest.fixture(scope="module")
def facts() -> list[Triple]:
    return list(default(SyntheticWorld, triples=2000).triples())


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some servers ask for pauses without end, which are cut to the longest back-off."""
    monkeypatch.setattr("pipeline.kg.sparql_client._BACKOFF_S", (0.25, 0.5))


QUIET = Console(quiet=True)


def run(
    folder: Path, *graphs: LyingGraph, method: str = "srp", questions: int = QUESTIONS, console: Console = QUIET
) -> pl.DataFrame:
    """Answer questions with these graph servers, and return their rows."""
    with ExitStack() as servers:
        urls = ",".join(servers.enter_context(lying(graph)) for graph in graphs)
        words = (
            *(f"method={method}", "llm=similarity", "dataset.triples=2000", f"run.limit={questions}"),
            *("kg=sparql", f"kg.endpoints=[{urls}]", "kg.retries=1", "kg.timeout_s=1", "kg.max_reply_mb=1"),
            *("run.max_equal_failures=null", "evaluation.bootstrap_resamples=100", f"run.dir='{folder}'"),
        )
        execute((Configuration(words, config.compose(words)),), console)
    return pl.concat(pl.read_parquet(path) for path in RunFolder(folder).traces).sort("question_id")


@pytest.fixture(scope="module")
def honest(facts: list[Triple], tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """The rows with an honest server."""
    rows = run(tmp_path_factory.mktemp("honest") / "run", LyingGraph(facts, [], honest=10**9, every=1))
    assert rows["status"].to_list() == ["ok"] * QUESTIONS
    assert rows["hits_at_1"].sum() > 0
    return rows


@pytest.mark.parametrize("mode", sampled(MODES))
def test_a_second_server_answers_every_question(
    mode: str, facts: list[Triple], honest: pl.DataFrame, tmp_path: Path
) -> None:
    broken = LyingGraph(facts, [mode], honest=HONEST, every=1)
    rows = run(tmp_path / "run", broken, LyingGraph(facts, [], honest=10**9, every=1))
    assert broken.lies
    assert rows["status"].to_list() == ["ok"] * QUESTIONS, rows["error"].to_list()
    assert rows["answers"].to_list() == honest["answers"].to_list()


def test_a_graph_server_that_a_run_waits_for_is_named(
    facts: list[Triple], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.engine.worker.LONG_WAIT_S", 0.3)
    monkeypatch.setattr("pipeline.engine.local.LOOK_S", 0.1)
    monkeypatch.setattr("pipeline.engine.progress.LINE_S", 0.0)
    text = io.StringIO()
    slow = LyingGraph(facts, ["a slow drip"], honest=HONEST, every=1)
    run(tmp_path / "run", slow, questions=1, console=Console(file=text, width=200))
    assert re.search(r"waiting more than 30 s for a reply of the graph: http://\S+/sparql for \d s", text.getvalue())


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_is_broken_from_the_start_is_set_aside(
    mode: str, facts: list[Triple], honest: pl.DataFrame, tmp_path: Path
) -> None:
    broken = LyingGraph(facts, [mode], honest=0, every=1)
    rows = run(tmp_path / "run", broken, LyingGraph(facts, [], honest=10**9, every=1))
    assert broken.lies
    assert rows["answers"].to_list() == honest["answers"].to_list()


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", MODES)
def test_without_another_server_a_question_fails_with_a_reason(
    mode: str, facts: list[Triple], honest: pl.DataFrame, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = run(tmp_path / "run", LyingGraph(facts, [mode], honest=HONEST, every=1))
    assert "failed" in rows["status"].to_list()
    reason = re.compile("(ServiceError|RequestRefused): no graph server (gave a usable answer|could be asked)")
    for row, expected in zip(rows.iter_rows(named=True), honest.iter_rows(named=True), strict=True):
        if row["status"] == "failed":
            assert reason.match(row["error"]), row["error"]
        else:
            assert row["answers"] == expected["answers"]
    assert "Traceback" not in capfd.readouterr().err
