"""Power is lost after each sync of a run. The same command then ends with the same results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from pipeline.traces.folder import RunFolder
from tests.engine.power import SyncRecorder
from tests.engine.test_run import resolve, rows, run

WORDS = ("method=cot", "engine.shard_size=10", "run.limit=30")
RATES = (0.3, 0.6)
"""The error rates of the run in the folder, and of the run that replaces it."""

Recorded = tuple[SyncRecorder, dict[float, pl.DataFrame]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """The states of the disk during the two runs, and the rows of each, by error rate."""
    root = tmp_path_factory.mktemp("disk")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        recorder = SyncRecorder(root)
        patch.setattr(os, "fsync", recorder)
        for rate in RATES:
            run(resolve(root / "run", *WORDS, f"llm.error_rate={rate}", "run.restart=true"))
            found[rate] = rows(root / "run")
    assert not found[0.3].equals(found[0.6])
    yield recorder, found
    recorder.close()


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.exhaustive) for part in range(1, 8))])
@pytest.mark.parametrize("early_names", [False, True])
def test_the_same_command_ends_with_the_same_results(
    part: int, early_names: bool, recorded: Recorded, tmp_path: Path
) -> None:
    """With `early_names` the disk has written every name at once, and contents only when they were synced."""
    recorder, expected = recorded
    assert len(recorder.states) > 20
    for number, states in list(enumerate(recorder.states))[part::8]:
        root = tmp_path / str(number)
        recorder.restore(states[early_names], root)
        saved = RunFolder(root / "run").read_run()
        rate = saved["points"][0]["config"]["llm"]["error_rate"] if saved else RATES[-1]
        # Without run.yaml, power was lost while the second command was deleting the first run: it is given again.
        run(resolve(root / "run", *WORDS, f"llm.error_rate={rate}", f"run.restart={saved is None}"))
        assert rows(root / "run").equals(expected[rate]), number


def test_a_finished_run_is_on_the_disk(recorded: Recorded, tmp_path: Path) -> None:
    recorder, expected = recorded
    recorder.restore(recorder.states[-1][0], tmp_path / "disk")
    assert rows(tmp_path / "disk" / "run").equals(expected[RATES[-1]])
    assert RunFolder(tmp_path / "disk" / "run").read_summary()
