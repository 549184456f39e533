"""A large run whose model and graph servers misbehave, now and then, in every way."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path

import polars as pl
import pytest
from aiohttp import web

from pipeline.cli.main import main
from pipeline.config import default
from pipeline.simulation.world import SyntheticWorld
from pipeline.traces.folder import RunFolder
from tests.kg.lying_server import MODES, LyingGraph, lying
from tests.llm.misbehaving_server import GOOD, ODD, UNUSABLE, serving
from tests.support import LARGE

TRIPLES = 5_000
HONEST = 16
"""Answers of a graph server to the checks at the start."""
MODEL_MODES = [*(mode for mode, _ in UNUSABLE.values()), *ODD.values()]
_TAIL = re.compile(r'"([^"<>]+)"\)')
"""The named end of a fact, as prompts show it."""


class GuessingModel:
    """A stand-in for a model: it answers with an end of a fact that the prompt decides, and misbehaves at times."""

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._modes = cycle(MODEL_MODES)
        self._asked = 0
        self.lies = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Answer one call."""
        prompt = (await request.json())["messages"][-1]["content"]
        self._asked += 1
        if self._every and self._asked % self._every == 0:
            self.lies += 1
            mode = next(self._modes)
            # An unusual reply says the same as a good one in another form, but always of the same name.
            if mode not in ODD.values():
                return await mode(request)
        names = _TAIL.findall(prompt) or ["nobody"]
        chosen = names[int(hashlib.sha256(prompt.encode()).hexdigest()[:8], 16) % len(names)]
        reply = json.loads(json.dumps(GOOD))
        reply["choices"][0]["message"]["content"] = f"{{Yes}} The answer is {{{chosen}}}"
        return web.json_response(reply)


@contextmanager
def memory_of_this_process() -> Iterator[list[int]]:
    """Yield a list that grows by the resident memory of the process, in bytes, every half second."""
    samples: list[int] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.5):
            fields = Path("/proc/self/statm").read_text().split()
            samples.append(int(fields[1]) * 4096)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def run(folder: Path, models: Sequence[GuessingModel], graphs: Sequence[LyingGraph], questions: int) -> int:
    """Answer questions over these servers. Return the exit code."""
    with ExitStack() as servers:
        model_urls = ",".join(servers.enter_context(serving(model)) for model in models)
        graph_urls = ",".join(servers.enter_context(lying(graph)) for graph in graphs)
        return main(
            [
                *("evaluate", "method=tog", "method.depth=1", "method.retries=0", "method.temperature_explore=0"),
                *(f"dataset.triples={TRIPLES}", f"dataset.questions={questions}", f"run.dir={folder}"),
                *("llm=endpoint", f"llm.base_urls=[{model_urls}]", "llm.timeout_s=5", "llm.max_reply_mb=1"),
                *("llm.max_backoff_s=1", "kg=sparql", f"kg.endpoints=[{graph_urls}]", "kg.timeout_s=5"),
                *(
                    "kg.max_reply_mb=4",
                    "kg.values_chunk=2",
                    "kg.cache_size=50",
                    "evaluation.bootstrap_resamples=100",
                    "engine.concurrency=64",
                ),
            ]
        )


def rows(folder: Path) -> pl.DataFrame:
    """Return what is compared of the rows of a run."""
    columns = ["question_id", "status", "error", "answers", "hits_at_1", "f1"]
    return pl.read_parquet(RunFolder(folder).traces, columns=columns).sort("question_id")


def compare(folder: Path, questions: int, every: int) -> None:
    """Run over honest servers, then over servers of which every `every`-th answer is wrong, and check every promise."""
    facts = list(default(SyntheticWorld, triples=TRIPLES).triples())
    never = 10**9
    run(folder / "honest", [GuessingModel(None)], [LyingGraph(facts, [], honest=never, every=1)], questions)
    expected = rows(folder / "honest")
    assert expected["status"].eq("failed").sum() == 0
    assert expected["hits_at_1"].sum() > 0

    models = [GuessingModel(every) for _ in range(2)]
    graphs = [LyingGraph(facts, MODES, honest=HONEST, every=every) for _ in range(2)]
    with memory_of_this_process() as memory:
        code = run(folder / "misbehaving", models, graphs, questions)
    found = rows(folder / "misbehaving")
    assert all(server.lies for server in (*models, *graphs))
    assert found["question_id"].to_list() == expected["question_id"].to_list()
    failed = found.filter(pl.col("status") == "failed")
    assert failed["error"].str.contains("^(ServiceError|RequestRefused): no ").all()
    assert code == (3 if failed.height > 0.05 * questions else 0)
    answered = found.filter(pl.col("status") != "failed").select("question_id", "answers", "hits_at_1", "f1")
    assert answered.equals(
        expected.select(answered.columns).filter(pl.col("question_id").is_in(answered["question_id"].to_list()))
    )
    half = len(memory) // 2
    assert max(memory[half:]) < 1.25 * max(memory[:half]), "memory grows with the questions"
    lies = [server.lies for server in (*models, *graphs)]
    print(
        f"{questions} questions, wrong answers {lies}, {failed.height} failed, exit code {code}, "
        f"{max(memory) >> 20} MiB"
    )


@pytest.mark.parametrize(
    ("questions", "every"),
    [
        pytest.param(150, 10, marks=pytest.mark.exhaustive),
        pytest.param(10_000, 100, marks=LARGE),
    ],
)
def test_every_question_is_answered_as_by_honest_servers_or_fails_with_a_reason(
    questions: int, every: int, tmp_path: Path
) -> None:
    compare(tmp_path, questions, every)
