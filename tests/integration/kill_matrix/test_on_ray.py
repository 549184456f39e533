"""The rows of the kill matrix with Ray: its workers, its nodes, and the driver that started them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import OUTAGE
from tests.integration.kill_matrix.stage import (
    CONCURRENCY,
    Judge,
    Stage,
    Undisturbed,
    meet_a_full_disk,
    middle,
    stopped,
)
from tests.integration.processes import heads, question_workers, raylets
from tests.integration.ray_nodes import LOOPBACK, cluster_of_head

pytestmark = pytest.mark.exhaustive

RAY = ["engine=ray", "engine.workers=2", f"engine.concurrency={CONCURRENCY // 2}", "engine.shard_size=4"]


def test_driver_on_ray(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with stage.struck(*RAY, after=middle(undisturbed)) as driver:
        os.kill(driver.pid, signal.SIGKILL)  # its cluster has no time to clear away what names it
    judge("driver on Ray", "kill -9, same command", stage.go_on(*RAY), most_repeated=CONCURRENCY)
    assert question_workers(stage.mark) == []


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_question_worker(fate: signal.Signals, stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with stage.struck(*RAY, after=middle(undisturbed)) as driver:
        os.kill(question_workers(stage.mark)[0], fate)
        printed = stage.end(driver)
    hung = fate == signal.SIGSTOP
    judge(
        "hung question worker" if hung else "question worker",
        "the process stops responding" if hung else "kill -9",
        printed,
    )


def test_ray_node(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with cluster_of_head(num_cpus=0) as cluster:
        nodes = [cluster.add_node(num_cpus=2, node_ip_address=LOOPBACK) for _ in "12"]
        with stage.struck(*RAY, f"engine.address={cluster.address}", after=middle(undisturbed)) as driver:
            cluster.remove_node(nodes[0], allow_graceful=False)
            printed = stage.end(driver)
    judge("Ray node", "kill -9 of its raylet, which also ends its workers", printed)


@pytest.mark.parametrize(
    ("part", "what", "processes", "sentence"),
    [
        ("Ray node of the driver", "raylet", raylets, "the Ray node of this machine has ended"),
        ("head of Ray", "GCS", heads, "the head of the Ray cluster, 127.0.0.1:"),
    ],
    ids=["node", "head"],
)
def test_what_ray_cannot_lose(
    part: str,
    what: str,
    processes: Callable[[str], list[int]],
    sentence: str,
    *,
    stage: Stage,
    undisturbed: Undisturbed,
    judge: Judge,
) -> None:
    """Without a node, Ray itself would wait for ever. Without a head, it would end the driver in its own code."""
    models = [each.pid for each in stage.models]  # if they answered, the workers would finish before they notice it
    with stage.struck(*RAY, after=middle(undisturbed)) as driver, stopped(models):
        [process] = processes(stage.mark)
        os.kill(process, signal.SIGKILL)
        driver.communicate(timeout=300)
    assert driver.returncode == OUTAGE, stage.said
    assert sentence in stage.said
    assert "Traceback" not in stage.said
    done = f"kill -9 of its {what}; run ends with exit code 4; same command"
    judge(part, done, stage.go_on(*RAY), most_repeated=CONCURRENCY)


def test_full_disk(stage: Stage, small_disk: Callable[[Path], None], undisturbed: Undisturbed, judge: Judge) -> None:
    small_disk(stage.run)
    meet_a_full_disk(stage, undisturbed, judge, RAY)
