"""The kill matrix: whatever dies, hangs or fills up in mid-run, each question has one answer, the table is the same."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.kill_matrix.stage import (
    CONCURRENCY,
    Judge,
    Stage,
    Undisturbed,
    meet_a_full_disk,
    middle,
    stopped,
)
from tests.support import LARGE

OUTAGE_S = 10
_UNHEALTHY_MODEL = r"model server \S+ is unhealthy"


def tear_a_draft(run: Path, rng: random.Random) -> bool:
    """Cut the last line of a draft anywhere, as a dying writer or file system would."""
    drafts = [path for path in (run / "drafts").glob("*.jsonl") if path.stat().st_size]
    if drafts:
        path = rng.choice(drafts)
        content = path.read_bytes()
        last_line = len(content) - content.rstrip(b"\n").rfind(b"\n") - 1
        path.write_bytes(content[: len(content) - rng.randint(1, last_line)])
    return bool(drafts)


@pytest.mark.parametrize(
    "moment",
    [
        *(pytest.param(moment, marks=pytest.mark.exhaustive) for moment in range(4)),
        *(pytest.param(moment, marks=LARGE) for moment in range(4, 20)),
    ],
)
def test_driver(moment: int, stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    rng = random.Random(moment)
    with stage.struck(after=rng.randrange(1, undisturbed.requests.total())) as driver:
        os.killpg(driver.pid, signal.SIGKILL)
    torn = moment % 4 == 3 and tear_a_draft(stage.run, rng)
    judge("driver", "kill -9 at random moments, same command", stage.go_on(), most_repeated=CONCURRENCY + torn)


@pytest.mark.exhaustive
def test_one_graph_replica(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with stage.struck(after=middle(undisturbed)) as driver:
        stage.graphs[0].kill()
        printed = stage.end(driver)
    assert f"graph server {stage.graphs[0].endpoint} is unhealthy" in stage.said
    judge("one Virtuoso replica", "kill -9, not restarted", printed, most_repeated=0)


@pytest.mark.exhaustive
def test_all_graph_replicas(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with stage.struck(after=middle(undisturbed)) as driver:
        for graph in stage.graphs:
            graph.kill()
        time.sleep(OUTAGE_S)
        assert driver.poll() is None
        for graph in stage.graphs:
            graph.start()
        printed = stage.end(driver)
    judge("both Virtuoso replicas", f"kill -9, restarted after {OUTAGE_S} s", printed, most_repeated=0)


IMPATIENT = ["kg.timeout_s=1", "llm.timeout_s=1", "llm.breaker_failures=2", "llm.breaker_reset_s=1"]


@pytest.mark.exhaustive
def test_a_hung_graph_replica(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with (
        stage.struck(*IMPATIENT, after=middle(undisturbed)) as driver,
        stopped([stage.graphs[0].process.pid]),
    ):
        printed = stage.end(driver)
    assert f"graph server {stage.graphs[0].endpoint} is unhealthy" in stage.said
    judge("hung endpoint: a graph server", "accepts, never answers", printed, most_repeated=0)


@pytest.mark.exhaustive
def test_all_graph_replicas_hung(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with stage.struck(*IMPATIENT, after=middle(undisturbed)) as driver:
        with stopped([graph.process.pid for graph in stage.graphs]):
            stage.wait_until(lambda: stage.said.count("is unhealthy: no answer within") >= 2, driver)
        printed = stage.end(driver)
    judge("hung endpoints: all graph servers", "all unhealthy, then back", printed, most_repeated=0)


@pytest.mark.exhaustive
def test_a_hung_model_server(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with (
        stage.struck(*IMPATIENT, after=middle(undisturbed)) as driver,
        stopped([stage.models[0].pid]),
    ):
        printed = stage.end(driver)
    assert re.search(_UNHEALTHY_MODEL, stage.said)
    judge("hung endpoint: a model server", "accepts, never answers", printed)


@pytest.mark.exhaustive
def test_all_model_servers_hung(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with stage.struck(*IMPATIENT, after=middle(undisturbed)) as driver:
        with stopped([model.pid for model in stage.models]):
            stage.wait_until(lambda: len(re.findall(_UNHEALTHY_MODEL, stage.said)) >= 2, driver)
        printed = stage.end(driver)
    judge("hung endpoints: all model servers", "all unhealthy, then back", printed)


@pytest.mark.exhaustive
def test_full_disk(stage: Stage, small_disk: Callable[[Path], None], undisturbed: Undisturbed, judge: Judge) -> None:
    small_disk(stage.run)
    meet_a_full_disk(stage, undisturbed, judge)
