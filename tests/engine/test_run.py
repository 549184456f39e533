"""A whole run in this process: rows, isolation, resuming, drift, reuse, replay and shared calls."""

from __future__ import annotations

import asyncio
import io
import itertools
import re
import sys
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.config import default
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from pipeline.engine.shard import Shard
from pipeline.engine.worker import Worker
from pipeline.engine.worker_reports import FinishedRows
from pipeline.errors import StorageError, UserError
from pipeline.llm.prompt import Call, Completion
from pipeline.simulation.oracle import QuestionOracle
from pipeline.simulation.world import SyntheticWorld
from pipeline.traces.folder import RunFolder
from pipeline.traces.journal import Journal
from tests.support import TIMES, refuse

sys.path.insert(0, str(Path(__file__).parent))  # workers import the test doubles by name

NOT_COMPARED = {*TIMES, "steps", "texts", "trail"}


def resolve(folder: Path, *overrides: str, method: dict[str, Any] | None = None) -> Configuration:
    words = (
        "dataset=synthetic",
        "dataset.triples=2000",
        "llm=oracle",
        *([] if any(word.startswith("run.limit=") for word in overrides) else ["run.limit=40"]),
        f"run.dir='{folder}'",
        *overrides,
    )
    resolved = config.compose(words)
    return Configuration(overrides, resolved | ({"method": method} if method else {}))


def run(*points: Configuration) -> dict[str, Any]:
    execute(points, Console(quiet=True))
    return RunFolder(Path(points[0].config["run"]["dir"])).read_summary() or {}


def rows(folder: Path) -> pl.DataFrame:
    """Return the rows without the columns that differ between runs: times."""
    frame = pl.read_parquet(folder / "traces" / "*.parquet").sort("point", "question_id")
    return frame.select([name for name in frame.columns if name not in NOT_COMPARED])


def steps(folder: Path) -> pl.DataFrame:
    frame = pl.scan_parquet(folder / "traces" / "*.parquet").select("point", "question_id", "steps", "texts")
    return frame.explode("steps", "texts").unnest("steps", "texts").collect()


def test_a_run_says_which_questions_wait_long_for_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.engine.worker.LONG_WAIT_S", 0.0)
    monkeypatch.setattr("pipeline.engine.local.LOOK_S", 0.01)
    monkeypatch.setattr("pipeline.engine.progress.LINE_S", 0.0)
    text = io.StringIO()
    slow = resolve(tmp_path / "run", "method=cot", "run.limit=2", "llm.latency_s=0.3")
    execute([slow], Console(file=text, width=200))
    waiting = r"for a reply of the oracle, which asks the graph: 2 questions, sample-test-00000[01] for 0 s"
    assert re.search(waiting, text.getvalue())


def test_every_question_is_a_row_and_the_summary_counts_calls(tmp_path: Path) -> None:
    summary = run(resolve(tmp_path / "run"))
    frame = rows(tmp_path / "run")
    assert frame.height == frame["question_id"].n_unique() == 40
    assert summary["complete"] is True
    assert summary["points"][0]["label"] == "oracle"
    assert summary["physical_llm_calls"] == summary["distinct_call_keys"] == frame["llm_calls"].sum()
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "run.yaml",
        "summary.json",
        "traces",
        "drafts",
        "prompts",
        "lock",
    }


def test_a_clock_that_goes_back_gives_no_negative_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(2e9, -1000.0)
    monkeypatch.setattr(time, "time", lambda: next(seconds))
    summary = run(resolve(tmp_path / "run"))
    assert 0 < summary["opening_s"] < summary["wall_s"] < 600


def test_a_bug_of_the_method_fails_only_its_questions(tmp_path: Path) -> None:
    summary = run(resolve(tmp_path / "run", method={"_target_": "methods.OneFails"}))
    frame = rows(tmp_path / "run")
    failed = frame.filter(pl.col("status") == "failed")
    assert failed["question_id"].str.ends_with("3").all()
    assert failed.height == summary["points"][0]["failed"] == 4
    (error,) = set(failed["error"])
    assert re.fullmatch(r"ZeroDivisionError: a bug of the method \(methods\.py:\d+\)", error)
    assert frame.filter(pl.col("status") == "ok")["hits_at_1"].to_list() == [1.0] * 36
    assert summary["points"][0]["hits_at_1"] == pytest.approx(0.9)


def test_a_question_that_hangs_fails_at_its_deadline(tmp_path: Path) -> None:
    budget = ("budget.max_wall_s=0.2", "budget.grace_s=0.1")
    run(resolve(tmp_path / "run", *budget, method={"_target_": "methods.Hangs"}))
    failed = rows(tmp_path / "run").filter(pl.col("status") == "failed")
    assert failed["question_id"].str.ends_with("5").all()
    assert failed["at_limit"].to_list() == [1] * 4
    assert set(failed["error"]) == {
        "TimeoutError: no answer within 0.3 s (raise budget.max_wall_s, here 0.2 s and budget.grace_s, 0.1 s)"
    }


def test_a_question_with_a_spent_budget_still_answers(tmp_path: Path) -> None:
    run(resolve(tmp_path / "run", "budget.max_llm_calls=3", method={"_target_": "methods.Insatiable"}))
    frame = rows(tmp_path / "run")
    assert set(frame["status"]) == {"budget_exhausted"}
    assert set(frame["llm_calls"]) == {4}
    assert frame["hits_at_1"].sum() == 40


def test_failed_questions_are_run_again_on_request(tmp_path: Path) -> None:
    outage = tmp_path / "outage"
    method = {"_target_": "methods.MeetsAnOutage", "outage": str(outage)}
    run(resolve(tmp_path / "undisturbed", method=method))
    outage.touch()
    assert run(resolve(tmp_path / "run", method=method))["points"][0]["failed"] == 4
    outage.unlink()
    assert run(resolve(tmp_path / "run", method=method))["points"][0]["failed"] == 4, "only on request"
    assert run(resolve(tmp_path / "run", "run.retry_failed=true", method=method))["points"][0]["failed"] == 0
    assert rows(tmp_path / "run").equals(rows(tmp_path / "undisturbed"))


def test_only_the_last_call_of_a_failed_question_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def reply(model: object, call: Call) -> Completion:
        asked.append(call.key)
        return Completion(f"reply {len(asked)}")

    monkeypatch.setattr(QuestionOracle, "complete", reply)
    unusable = tmp_path / "unusable"
    unusable.write_text("reply 2\nreply 4")
    words = ("run.limit=3", "engine.concurrency=1")
    method = {"_target_": "methods.ChokesOnReply", "unusable": str(unusable)}
    assert run(resolve(tmp_path / "run", *words, method=method))["points"][0]["failed"] == 2
    assert run(resolve(tmp_path / "run", *words, "run.retry_failed=true", method=method))["points"][0]["failed"] == 0
    assert sorted(asked[6:]) == sorted([asked[1], asked[3]])
    answers = [answer for (answer,) in rows(tmp_path / "run")["answers"]]
    assert [answer.split()[1] for answer in answers] == ["1", "3", "5"]
    assert {answer.split()[3] for answer in answers} == {"6", "7", "8"}


def test_a_call_of_another_row_that_did_not_fail_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def reply(model: object, call: Call) -> Completion:
        asked.append(call.key)
        return Completion("a reply")

    monkeypatch.setattr(QuestionOracle, "complete", reply)
    strict, lenient = tmp_path / "strict", tmp_path / "lenient"
    strict.write_text("a reply")
    lenient.touch()
    methods = [{"_target_": "methods.ChokesOnReply", "unusable": str(file)} for file in (strict, lenient)]
    points = [resolve(tmp_path / "run", "run.limit=3", method=method) for method in methods]
    assert [point["failed"] for point in run(*points)["points"]] == [3, 0]
    strict.write_text("")
    points = [resolve(tmp_path / "run", "run.limit=3", "run.retry_failed=true", method=method) for method in methods]
    assert [point["failed"] for point in run(*points)["points"]] == [0, 0]
    assert len(asked) == 6


def test_a_folder_that_cannot_be_written_to_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(journal: object, *line: object, **owner: object) -> None:
        raise StorageError("shard-00000.jsonl cannot be written: No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    with pytest.raises(ExceptionGroup) as ended:
        run(resolve(tmp_path / "run"))
    assert ended.group_contains(StorageError)
    assert not (tmp_path / "run" / "summary.json").exists()


async def test_no_call_is_made_that_cannot_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other shards of the worker stop, too."""
    lost = []

    def full(journal: object, *line: object, **owner: object) -> None:
        lost.append(line)
        raise StorageError("shard-00000.jsonl cannot be written: No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    for name in ("drafts", "prompts", "traces"):
        (tmp_path / "run" / name).mkdir(parents=True)
    point = resolve(tmp_path / "run", "engine.concurrency=2").config
    examples = tuple(islice(default(SyntheticWorld, triples=2000).examples(refuse), 4))
    async with Worker([point], tmp_path / "run", lambda *_: None) as worker:
        shards = [Shard(0, examples[:2]), Shard(1, examples[2:])]
        ended = await asyncio.gather(*(worker.run(s, lambda _: None) for s in shards), return_exceptions=True)
    assert all(isinstance(each, ExceptionGroup) and each.subgroup(StorageError) for each in ended)
    assert len(lost) <= 2


async def test_rows_whose_calls_are_all_in_the_journal_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker ends after its shard is done and before its journal is removed."""

    async def keep(journal: Journal) -> None:
        pass

    monkeypatch.setattr(Journal, "discard", keep)
    for name in ("drafts", "prompts", "traces"):
        (tmp_path / "run" / name).mkdir(parents=True)
    point = resolve(tmp_path / "run").config
    first, second, third = islice(default(SyntheticWorld, triples=2000).examples(refuse), 3)
    counts = []
    for examples in ((first, second), (first, second, third)):
        finished: list[FinishedRows] = []
        async with Worker([point], tmp_path / "run", lambda *_: None) as worker:
            await worker.run(Shard(0, examples), finished.append)
        rows = sum(finished, FinishedRows())
        counts.append((rows.questions, rows.replayed))
    assert counts == [(2, 0), (3, 2)]


def test_a_folder_name_is_not_a_glob_pattern(tmp_path: Path) -> None:
    one, other = tmp_path / "r[12]", tmp_path / "r1"
    assert run(resolve(other, "run.limit=8"))["questions"] == 8
    assert run(resolve(one))["complete"] is True
    assert run(resolve(tmp_path / "again", f"run.reuse=['{one}']"))["physical_llm_calls"] == 0


def test_the_same_command_on_a_finished_run_does_nothing(tmp_path: Path) -> None:
    first = run(resolve(tmp_path / "run"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "traces").iterdir()}
    again = run(resolve(tmp_path / "run"))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "traces").iterdir()} == before
    assert again == first, "including the times"


def test_only_the_missing_shards_are_run_again(tmp_path: Path) -> None:
    run(resolve(tmp_path / "run"))
    expected = rows(tmp_path / "run")
    kept, lost = sorted((tmp_path / "run" / "traces").iterdir())[:2]
    modified = kept.stat().st_mtime_ns
    lost.unlink()
    run(resolve(tmp_path / "run"))
    assert kept.stat().st_mtime_ns == modified
    assert rows(tmp_path / "run").equals(expected)


def test_a_resume_with_another_configuration_is_refused_with_the_keys(tmp_path: Path) -> None:
    run(resolve(tmp_path / "run"))
    with pytest.raises(UserError, match=r"method\.max_edits: 3 → 1"):
        run(resolve(tmp_path / "run", "method.retries=1"))
    run(resolve(tmp_path / "run", "engine.concurrency=3"))  # a runtime-only key


def test_a_resume_that_meets_another_model_is_refused(tmp_path: Path) -> None:
    run(resolve(tmp_path / "run"))
    folder = RunFolder(tmp_path / "run")
    saved = folder.read_run()
    assert saved is not None
    saved["served"][0]["model"] = "another model"
    folder.write_run(saved)
    sorted((tmp_path / "run" / "traces").iterdir())[0].unlink()
    with pytest.raises(UserError, match="began with the model another model"):
        run(resolve(tmp_path / "run"))


def test_a_run_that_reuses_another_makes_none_of_its_calls(tmp_path: Path) -> None:
    first = run(resolve(tmp_path / "first"))
    again = run(resolve(tmp_path / "again", f"run.reuse=[{tmp_path / 'first'}]"))
    assert again["physical_llm_calls"] == 0
    assert again["logical_llm_calls"] == first["logical_llm_calls"]
    assert (first["reused_llm_calls"], again["reused_llm_calls"]) == (0, first["physical_llm_calls"])
    ignored = ["llm_calls_shared"]
    assert rows(tmp_path / "again").drop(ignored).equals(rows(tmp_path / "first").drop(ignored))


@pytest.mark.exhaustive
def test_reusing_a_shallower_run_makes_only_the_new_calls(tmp_path: Path) -> None:
    words = ("llm.error_rate=0.3", "run.limit=40")
    alone = run(resolve(tmp_path / "alone", *words, "method.retries=2"))
    first = run(resolve(tmp_path / "first", *words, "method.retries=1"))
    extended = run(resolve(tmp_path / "extended", *words, "method.retries=2", f"run.reuse=[{tmp_path / 'first'}]"))
    known = set(steps(tmp_path / "first").drop_nulls("key").select("question_id", "key").iter_rows())
    needed = set(steps(tmp_path / "alone").drop_nulls("key").select("question_id", "key").iter_rows())
    assert 0 < extended["physical_llm_calls"] == len(needed - known) < alone["physical_llm_calls"]
    assert first["physical_llm_calls"] > 0
    assert extended["reused_llm_calls"] == len(needed & known)


def test_replay_answers_a_run_without_its_model(tmp_path: Path) -> None:
    run(resolve(tmp_path / "first", "llm.error_rate=0.3", "llm.malformed_rate=0.2"))
    run(resolve(tmp_path / "replayed", "llm=replay", f"llm.run={tmp_path / 'first'}"))
    assert rows(tmp_path / "replayed").equals(rows(tmp_path / "first"))


def test_replay_names_the_field_that_differs_from_the_nearest_call(tmp_path: Path) -> None:
    run(resolve(tmp_path / "first"))
    words = ("llm=replay", f"llm.run={tmp_path / 'first'}", "method.temperature=0.9", "run.max_equal_failures=null")
    run(resolve(tmp_path / "replayed", *words))
    errors = rows(tmp_path / "replayed")["error"]
    assert errors.str.contains("differs in sampling.temperature").all()


def test_replay_names_a_question_that_was_not_recorded(tmp_path: Path) -> None:
    run(resolve(tmp_path / "first", "run.limit=4"))
    run(resolve(tmp_path / "replayed", "llm=replay", f"llm.run={tmp_path / 'first'}", "run.limit=8"))
    errors = rows(tmp_path / "replayed")["error"].drop_nulls()
    assert errors.to_list() == ["Unanswerable: not recorded: that run has no call of this question"] * 4


def test_configurations_of_one_run_share_calls_and_answer_as_if_alone(tmp_path: Path) -> None:
    points = [
        resolve(tmp_path / "fused", method={"_target_": "methods.Samples", "samples": samples}) for samples in (1, 3)
    ]
    fused = run(*points)
    assert fused["logical_llm_calls"] == 40 * (1 + 3)
    assert fused["physical_llm_calls"] == fused["distinct_call_keys"] == 40 * 3
    for index, samples in enumerate((1, 3)):
        run(resolve(tmp_path / f"alone{samples}", method={"_target_": "methods.Samples", "samples": samples}))
        ignored = ["point", "llm_calls_shared"]
        of_point = rows(tmp_path / "fused").filter(pl.col("point") == index).drop(ignored)
        assert of_point.equals(rows(tmp_path / f"alone{samples}").drop(ignored))


def test_each_prompt_can_be_rebuilt_from_the_run_folder(tmp_path: Path) -> None:
    run(resolve(tmp_path / "run"))
    folder = RunFolder(tmp_path / "run")
    calls = steps(tmp_path / "run").filter(pl.col("kind") == "llm")
    for template, inputs in calls.select("template", "inputs").iter_rows():
        messages = folder.read_template(template).render(orjson.loads(inputs))
        assert "{{" not in "".join(message.content for message in messages)


def test_a_method_cannot_reach_gold(tmp_path: Path) -> None:
    from methods import Samples

    seen: list[object] = []

    class Spy(Samples):
        async def answer(self, question, tools):
            seen.extend(public_attributes([question, tools.llm, tools.kg, tools.retrieval, tools.record, tools.rng]))
            return await super().answer(question, tools)

    import methods

    methods.Spy = Spy  # type: ignore[attr-defined]
    run(resolve(tmp_path / "run", "run.limit=1", method={"_target_": "methods.Spy", "samples": 1}))
    from pipeline.types import Example, Gold

    assert seen
    assert not any(isinstance(value, (Gold, Example)) for value in seen)


def public_attributes(roots: Iterable[object]) -> list[object]:
    """Return the values of all public attributes."""
    return [getattr(root, name) for root in roots for name in dir(root) if not name.startswith("_")]


def test_a_method_without_answer_is_refused_before_anything_is_asked() -> None:
    method = {"_target_": "tests.engine.methods.Misspelt"}
    configuration = Configuration((), config.compose(["llm=oracle"]) | {"method": method})
    said = "method._target_=tests.engine.methods.Misspelt has no `answer`. Did you mean 'answr'?"
    with pytest.raises(UserError, match=re.escape(said)):
        configuration.check()
