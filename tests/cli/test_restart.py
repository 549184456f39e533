"""`run.restart=true` deletes the earlier results when the new run can begin, and not before."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from pipeline.cli.main import guard
from pipeline.engine import run as engine_run
from pipeline.engine.worker import Worker
from pipeline.errors import RunStopped
from tests.cli.conftest import WORLD
from tests.cli.support import Kgqa

SAME = ("evaluate", *WORLD, "llm=oracle", "llm.error_rate=0.4", "run.dir=run")


@pytest.fixture(autouse=True)
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("llm=endpoint llm.base_urls=[http://127.0.0.1:{port}/v1] llm.model=x", "no model server can be used"),
        ("kg=sparql kg.endpoints=[http://127.0.0.1:{port}/sparql]", "no graph server answers"),
        ("dataset=custom dataset.triples=none.tsv dataset.questions=questions.jsonl", "none.tsv"),
        ("dataset=custom dataset.triples=facts.tsv dataset.questions=bad.jsonl", "bad.jsonl is not a file of"),
        (
            "dataset=custom dataset.triples=facts.tsv dataset.questions=half.jsonl dataset.strict=true",
            "half.jsonl, line",
        ),
        ("llm=embedded llm.model=none", "llm.model=none is not a folder"),
        ("run.reuse=[none]", "none has no run.yaml"),
        ("run.reuse=[run]", "run.reuse=run names the results that run.restart=true deletes"),
    ],
)
def test_the_earlier_results_stay_if_the_new_run_cannot_begin(
    words: str, reason: str, run: Path, closed_port: int, kgqa: Kgqa
) -> None:
    Path("facts.tsv").write_text("a\tr\tb\n")
    question = '{"id": "q1", "question": "Who?", "topic_entities": ["a"], "answers": ["b"]}\n'
    Path("questions.jsonl").write_text(question)
    Path("bad.jsonl").write_text("{}\n")
    Path("half.jsonl").write_text(f"{question}{{}}\n")
    before = contents(run)
    given = [word for word in SAME if not (word.startswith("dataset.") and "dataset=" in words)]
    given = [word for word in given if not (word.startswith("llm") and "llm=" in words)]
    assert reason in kgqa(*given, *words.format(port=closed_port).split(), "run.restart=true").sentence
    assert contents(run) == before
    assert "nothing to run" in kgqa(*SAME).err


def test_the_run_is_begun_again(run: Path, kgqa: Kgqa) -> None:
    (run / "rejected.jsonl").write_text("{}\n")
    again = kgqa(*SAME, "run.restart=true")
    assert again.code == 0, again.err
    assert "nothing to run" not in again.err
    assert not (run / "rejected.jsonl").exists()


def test_stopped_before_the_run_begins_nothing_is_deleted(
    run: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(run)
    monkeypatch.setattr(engine_run, "count_rows", lambda *_, **__: signal.raise_signal(signal.SIGINT) or (1, 0))
    stopped = kgqa(*SAME, "run.restart=true")
    assert stopped.code == 130
    said = "kgqa: stopped before the earlier results were deleted; run the same command again to replace them"
    assert stopped.err.splitlines()[-1] == said
    assert contents(run) == before


def test_stopped_after_it_has_begun_the_run_continues_without_restart(
    run: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopping(_: Worker) -> list[str]:
        signal.raise_signal(signal.SIGINT)
        return []

    with monkeypatch.context() as patched:
        patched.setattr(Worker, "missing_nodes", stopping)
        stopped = kgqa(*SAME, "run.restart=true")
    assert stopped.code == 130
    said = "kgqa: stopped; run the same command again without run.restart=true to continue"
    assert stopped.err.splitlines()[-1] == said
    assert not list((run / "traces").iterdir())
    again = kgqa(*SAME)
    assert again.code == 0
    assert "nothing to run" not in again.err


@pytest.mark.parametrize("has_begun", [False, True])
def test_the_advice_says_whether_the_results_are_still_there(
    has_begun: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def job(_: list[str]) -> int:
        raise RunStopped if has_begun else KeyboardInterrupt

    assert guard(job, ["evaluate", "run.restart=true"]) == 130
    assert ("without run.restart=true" in capsys.readouterr().err) is has_begun
