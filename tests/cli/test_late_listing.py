"""An object store that lists new objects late: no result is lost, and no score is of a part of the questions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import storage_path
from tests.cli.support import Kgqa

WORDS = ("evaluate", "method=cot", "llm=oracle", "dataset.triples=2000", "run.limit=40", "engine.shard_size=10")


@pytest.fixture
def late(request: pytest.FixtureRequest) -> Iterator[pytest.MonkeyPatch]:
    """`memory://` lists an object only `request.param` seconds after it was written, until the patch is undone."""
    whole = MemoryFileSystem.ls

    def ls(self: MemoryFileSystem, path: str, detail: bool = True, **options: Any) -> Any:
        written = [each for each in whole(self, path, True, **options) if "created" in each]
        new = {each["name"] for each in written if time.time() - each["created"] < request.param}
        return [
            each if detail else each["name"] for each in whole(self, path, True, **options) if each["name"] not in new
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFileSystem, "ls", ls)
        yield patch


@pytest.mark.parametrize("late", [0.3, 3600], indirect=True)
def test_a_part_of_a_run_is_not_taken_for_the_whole(late: pytest.MonkeyPatch, kgqa: Kgqa) -> None:
    expected = kgqa(*WORDS, "run.dir=clean").out
    folder = f"memory://{uuid.uuid4().hex}/run"
    first = kgqa(*WORDS, f"run.dir={folder}")
    assert (first.code, first.out) == (0, expected) or first.sentence
    late.undo()
    again = kgqa(*WORDS, f"run.dir={folder}")
    assert again.out == expected, again.err
    assert (RunFolder(storage_path(folder)).read_summary() or {})["complete"]
