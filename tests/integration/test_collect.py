"""`kgqa collect arg` with a served critic, killed in the middle: the same command loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration import recorded_server
from tests.support import KGQA

pytestmark = pytest.mark.exhaustive

CONCURRENCY = 4
JOB = [
    *("collect", "arg", "dataset=synthetic", "dataset.split=train", "dataset.triples=4000", "run.limit=24"),
    *(f"engine.concurrency={CONCURRENCY}", "engine.shard_size=4", "collect.paths=known"),
]


@dataclass
class Stage:
    """A served critic that repeats what the oracle said, and the folder that collections are made in."""

    folder: Path
    words: list[str]
    log: Path

    def start(self, name: str) -> subprocess.Popen[bytes]:
        command = [*KGQA, *JOB, *self.words, f"run.dir={self.folder / name}", f"output={self.folder / name}.jsonl"]
        return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)

    def collect(self, name: str) -> bytes:
        """Begin a collection or go on with it, to its end; the texts."""
        with self.start(name) as process:
            assert process.wait(120) == 0
        return (self.folder / f"{name}.jsonl").read_bytes()

    @property
    def requests(self) -> Counter[str]:
        """How often each prompt was asked so far."""
        return Counter(self.log.read_text().split()) if self.log.exists() else Counter()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("collect")
    # The oracle damages replies, so that some are asked for again.
    words = [
        "llm=oracle",
        "llm.malformed_rate=0.1",
        f"run.dir={folder / 'recorded'}",
        f"output={folder / 'recorded.jsonl'}",
    ]
    subprocess.run([*KGQA, *JOB, *words], check=True, stdout=subprocess.DEVNULL)
    log = folder / "requests"
    replies = recorded_server.write_replies(folder / "recorded", folder / "replies.json")
    command = [sys.executable, recorded_server.__file__, str(replies), str(log), "0.02"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
            yield Stage(folder, ["llm=endpoint", f"llm.base_urls=[{url}]"], log)
        finally:
            server.kill()


def test_a_killed_collection_goes_on_where_it_stopped(stage: Stage) -> None:
    texts = stage.collect("undisturbed")
    assert texts == (stage.folder / "recorded.jsonl").read_bytes(), "the server says what the oracle said"
    undisturbed = stage.requests
    for moment, share in enumerate((0.2, 0.5, 0.9)):
        before = stage.requests
        with stage.start(f"killed-{moment}") as process:
            while (stage.requests - before).total() < share * undisturbed.total():
                assert process.poll() is None, "the collection ended too early"
                time.sleep(0.002)
            os.killpg(process.pid, signal.SIGKILL)
        assert not (stage.folder / f"killed-{moment}.jsonl").exists()
        assert stage.collect(f"killed-{moment}") == texts
        asked = stage.requests - before
        assert asked & undisturbed == undisturbed
        assert (asked - undisturbed).total() <= CONCURRENCY, "only what was in flight is asked again"
