"""The event loop of a worker makes only short pauses: threads and the garbage collector take little time at once."""

from __future__ import annotations

import gc
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from pipeline import config
from pipeline.engine import worker
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from pipeline.engine.short_pauses import short_pauses


def test_settings_of_the_interpreter_are_changed_back() -> None:
    before = gc.get_threshold(), sys.getswitchinterval()
    frozen = gc.get_freeze_count()
    with pytest.raises(KeyError), short_pauses():  # noqa: PT012 - the block ends by an error
        assert sys.getswitchinterval() < before[1]
        assert gc.get_freeze_count() > frozen
        raise KeyError
    assert (gc.get_threshold(), sys.getswitchinterval()) == before
    assert gc.get_freeze_count() == 0


def test_one_shard_is_written_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing = threading.Lock()
    written: list[bool] = []
    usual = worker.write_shard

    def write_shard(*args: object) -> None:
        written.append(writing.acquire(blocking=False))
        time.sleep(0.05)  # so long that another one would begin
        usual(*args)  # type: ignore[arg-type]
        writing.release()

    monkeypatch.setattr(worker, "write_shard", write_shard)
    words = ["llm=oracle", "dataset.triples=2000", "run.limit=16", f"run.dir={tmp_path / 'run'}"]
    words += ["engine.concurrency=16", "engine.shard_size=4"]
    execute([Configuration(words, config.compose(words))], Console(quiet=True))
    assert written == [True] * 4
