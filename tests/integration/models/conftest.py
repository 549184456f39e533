"""A run that serves a real Llama itself. Several tests compare others with it: its server takes a minute to start."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.conftest import SERVE
from tests.integration.kill_matrix.stage import Stage, Undisturbed
from tests.integration.rows import read

# Random weights write to the last token they may, so few of each are allowed.
LLAMA_RUN = [
    *("method=srp", "method.max_tokens_plan=24", "method.max_tokens_judge=16", "method.max_tokens_other=16"),
    *("dataset=synthetic", "budget.max_llm_calls=6", "budget.max_evidence_triples=20", "budget.max_frontier=50"),
    *("engine.concurrency=4", "engine.shard_size=8", "llm.max_retries=100", "llm.max_backoff_s=2"),
]


def kept(stage: Stage) -> int:
    """The calls in the journals of a run."""
    return sum(draft.read_bytes().count(b"\n") for draft in (stage.run / "drafts").glob("*.jsonl"))


def staged(folder: Path, words: Sequence[str]) -> Stage:
    """The stage of a run of eight questions with a real Llama."""
    folder.mkdir()
    return Stage(folder, [], [], [*LLAMA_RUN, "run.limit=8", *words], uuid.uuid4().hex, kept)


@dataclass(frozen=True)
class ServedRun:
    """A finished run that served its model itself, on Ray."""

    words: list[str]
    """Those that make a run serve the Llama."""
    folder: Path
    undisturbed: Undisturbed


@pytest.fixture(scope="session")
def served_run(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> ServedRun:
    words = ["llm=serve", f"llm.model={llama}", *SERVE]
    stage = staged(tmp_path_factory.mktemp("served") / "a", [*words, "engine=ray", "engine.workers=1"])
    printed = stage.go_on()
    return ServedRun(words, stage.run, Undisturbed(read(stage.run), printed, stage.requests))
