"""Ctrl-C and SIGTERM: exit code 130 or 143, one line, no process left; the same command then continues the run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.cli.commands import COMMANDS
from pipeline.cli.main import guard
from pipeline.llm.embedded.llama import Llama
from pipeline.llm.embedded.reply import Reply
from pipeline.traces.folder import RunFolder
from tests.cli.support import Kgqa
from tests.support import KGQA, sampled

QUESTIONS, ANSWERED, CONCURRENCY = 24, 16, 4
# The signal comes when 13 to 16 replies are read: one shard is finished, and the next has begun.
LOCAL = [f"engine.concurrency={CONCURRENCY}", "engine.shard_size=12"]
EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
RAY = ["engine=ray", "engine.workers=1", *LOCAL]


@pytest.mark.parametrize(
    "engine", [pytest.param(LOCAL, id="local"), pytest.param(RAY, id="ray", marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("sent", sampled(EXIT_CODES))
def test_a_signal_ends_a_run_and_the_same_command_finishes_it(
    engine: list[str],
    sent: signal.Signals,
    model_server: Callable[..., tuple],
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    model, words = model_server(holds_after=ANSWERED)
    run = ["method=cot", "dataset.triples=2000", f"run.limit={QUESTIONS}", "run.dir=run"]
    command = [*KGQA, "evaluate", *run, *engine, *words]
    marker = uuid.uuid4().hex
    own = {**environment, "KGQA_TEST_MARK": marker}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=own, cwd=tmp_path, start_new_session=True, **streams) as process:
        assert model.holding.wait(120), "the run never made so many requests"
        if sent == signal.SIGINT:
            os.killpg(process.pid, sent)  # as a terminal does: to the command and all that it started
        else:
            process.send_signal(sent)
        out, err = process.communicate()
    assert process.returncode == EXIT_CODES[sent]
    assert out == ""
    assert "Traceback" not in err
    said = "kgqa: stopped; run the same command again to continue"
    assert [line for line in err.splitlines() if "kgqa: " in line] == [err.splitlines()[-1]] == [said]
    assert_gone(marker)

    model.release()
    again = [*KGQA, "evaluate", *run, *LOCAL, *words]  # another engine continues it too, and Ray takes longer
    ended = subprocess.run(again, env=own, cwd=tmp_path, **streams, check=False)
    assert ended.returncode == 0, ended.stderr
    assert re.search("model calls? of unfinished shards (?:is|are) stored from before", ended.stderr)
    ids = pl.read_parquet(tmp_path / "run" / "traces" / "*.parquet")["question_id"]
    assert len(ids) == ids.n_unique() == QUESTIONS
    assert model.requests <= QUESTIONS + CONCURRENCY, "only what was in flight is asked again"


_ENDLESS = """
from dataclasses import dataclass


@dataclass(frozen=True)
class Endless:
    name = "endless"

    async def answer(self, question, tools):
        open("begun", "w").close()
        while True:
            pass
"""


@pytest.mark.exhaustive
def test_ctrl_c_during_an_endless_loop_says_what_stops_it(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(_ENDLESS)
    conf = tmp_path / "conf" / "method"
    conf.mkdir(parents=True)
    (conf / "endless.yaml").write_text("_target_: endless.Endless\n")
    own = {**environment, "PYTHONPATH": os.pathsep.join([str(tmp_path), environment.get("PYTHONPATH", "")])}
    command = [*KGQA, "evaluate", "method=endless", "llm=oracle", "dataset.triples=2000", "run.limit=2", "run.dir=run"]
    with subprocess.Popen(command, env=own, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert next(line for line in process.stderr if "press Ctrl-C again to stop at once" in line)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130, rest


def test_ctrl_c_stops_the_model_in_this_process_between_tokens(
    llama: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 300
    run = ["method=cot", f"method.max_tokens={most}", "dataset.triples=2000", "run.limit=4", "engine.concurrency=1"]
    words = ["evaluate", *run, "llm=embedded", f"llm.model={llama}", "run.max_failed=1"]
    assert kgqa(*words, "run.dir=whole").code == 0
    generate, add = Llama.generate, Reply.add
    drafts: list[int] = []

    def noting(model: Llama, *prompts: Any, stops: Callable[[int], bool], **options: Any) -> Any:
        pressed: list[None] = []

        def asked(index: int) -> bool:
            if not pressed and RunFolder(Path("run")).journal_calls() >= 2:
                pressed.append(os.kill(os.getpid(), signal.SIGINT))
            return stops(index)

        return generate(model, *prompts, stops=asked, **options)

    def note(reply: Reply, draft: Sequence[int], logits: Any) -> None:
        drafts.append(len(draft))
        add(reply, draft, logits)

    with monkeypatch.context() as pressing:
        pressing.setattr(Llama, "generate", noting)
        pressing.setattr(Reply, "add", note)
        ended = kgqa(*words, "run.dir=run")
    assert ended.code == 130
    said = ended.err.splitlines()
    assert "stopping: calls in flight are given up, and made again when the run goes on" in said
    assert said[-1] == "kgqa: stopped; run the same command again to continue"
    assert drafts[-1] < most, "the call in flight ended before its last token"
    kept = RunFolder(Path("run")).journal_calls()
    assert kept >= 2

    again = kgqa(*words, "run.dir=run")
    assert again.code == 0, again.err
    assert f"{kept} model calls of unfinished shards are stored from before" in again.err
    columns = ["question_id", "raw_answer", "answers", "llm_calls", "completion_tokens"]
    whole, resumed = (pl.read_parquet(f"{name}/traces/*.parquet", columns=columns) for name in ("whole", "run"))
    assert resumed.sort("question_id").equals(whole.sort("question_id"))


CONTINUES = "stopped; run the same command again to continue"
RESUMED = ("estimate", "evaluate", "sweep", "ablations", "reproduce", "collect arg", "collect parog", "collect rog")
TRAINED = ("train arg", "train parog", "train rog", "train bundled-model", "train improve")


@pytest.mark.parametrize("sent", EXIT_CODES)
@pytest.mark.parametrize("name", COMMANDS)
def test_only_a_command_that_can_be_continued_says_so(
    name: str, sent: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    def job(_: list[str]) -> int:
        signal.raise_signal(sent)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    assert guard(job, name.split()) == EXIT_CODES[sent]
    said = CONTINUES if name in (*RESUMED, *TRAINED) else "stopped"
    assert capsys.readouterr().err == f"kgqa: {said}\n"
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_ends_a_command_for_which_ctrl_c_is_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    def job(_: list[str]) -> int:
        signal.raise_signal(signal.SIGTERM)
        return 0

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert guard(job, ["compare", "run"]) == 143
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "kgqa: stopped\n"


def assert_gone(marker: str) -> None:
    """No process of the run is left, after the moment that a cluster takes to go down."""
    patience = time.monotonic() + 30
    while (left := processes(marker)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert left == []


def processes(marker: str) -> list[str]:
    """The running processes with the marker in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:  # it has just gone
            continue
    return found
