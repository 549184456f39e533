"""The comparison of the speed of two commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import compare_commits
from tests.compare_commits import Cost, ratios

ROOT = Path(__file__).resolve().parents[1]


def test_ratios_are_paired() -> None:
    """Each pair met another state of the machine, but the second always took half."""
    pairs = [(Cost(2 * slow, 4 * slow, 100), Cost(slow, 2 * slow, 200)) for slow in (1.0, 3.0, 2.0)]
    found = ratios(pairs)
    assert found["cpu_s"] == pytest.approx((0.5, 0.5, 0.5))
    assert found["memory_mb"] == pytest.approx((2, 2, 2))


def test_an_interval_is_wide_where_pairs_differ() -> None:
    pairs = [(Cost(1, 1, 1), Cost(2, 1, 1)), (Cost(2, 1, 1), Cost(1, 1, 1)), (Cost(1, 1, 1), Cost(1, 1, 1))]
    found = ratios(pairs)["cpu_s"]
    assert found.mean == pytest.approx(1)
    assert found.low < 0.3
    assert found.high > 3


@pytest.mark.exhaustive
def test_a_commit_is_compared_with_this_tree(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "method=cot", "llm=endpoint", "llm.base_urls=[{server}]", "run.limit=5", "run.dir={run}"]
    compare_commits.main(["HEAD", "--rounds=2", *words])
    table = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in table[2:]] == ["| cpu_s", "| wall_s", "| memory_mb"]
    worktrees = subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "kgqa-base-" not in worktrees.stdout


def test_a_command_that_fails_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="`kgqa evaluate method=nosuch` ended with exit code 2"):
        compare_commits._run(ROOT, ["evaluate", "method=nosuch"], "http://127.0.0.1:1/v1")
