"""Failures say what happened: in the table, in the trace, and by stopping a run that cannot succeed."""

from __future__ import annotations

import json
import re
import shlex
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pipeline.cli.main import main
from pipeline.engine import repeated_failures
from pipeline.engine.repeated_failures import RepeatedFailures
from pipeline.engine.worker_reports import FinishedRows
from pipeline.errors import MISTAKE, OUTAGE, Outage, UserError
from tests.llm.misbehaving_server import body, reply, serving

METHOD = """
from pydantic.dataclasses import dataclass
from pipeline.errors import ServiceError
from pipeline.types import Answer, Prediction


@dataclass
class Broken:
    name: str
    good: str = ""
    failing: int = 100
    exits: bool = False
    bound: int = 100
    gone_from: int = 100

    async def answer(self, question, tools):
        if int(question.id[-2:]) >= self.gone_from:
            raise ServiceError("no graph server gave a usable answer")
        if question.id[-1] in self.good or int(question.id[-2:]) >= self.failing:
            return Answer()
        if self.exits:
            raise SystemExit(3)
        return self.look_up({}, question.id)

    def most_llm_calls(self, question, caps):
        return 100 // self.bound

    def look_up(self, table, id):
        return table[id]
"""


@pytest.fixture
def evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a method that raises KeyError, and return the exit code and both streams."""
    monkeypatch.chdir(tmp_path)
    choices = tmp_path / "conf" / "method"
    choices.mkdir(parents=True)
    keys = [
        "_target_: broken_method.Broken",
        "name: broken",
        "good: ''",
        "failing: 100",
        "exits: false",
        "bound: 100",
        "gone_from: 100",
    ]
    (choices / "broken.yaml").write_text("\n".join(keys))
    (tmp_path / "broken_method.py").write_text(METHOD)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        command = ["evaluate", f"hydra.searchpath=[file://{choices.parent}]", "method=broken", "dataset.triples=2000"]
        code = main([*command, "run.dir=r", *words])
        return code, *capsys.readouterr()

    return run


def test_a_run_whose_first_questions_all_fail_alike_stops_with_the_error_and_keeps_the_traceback(
    evaluate: Callable[..., tuple[int, str, str]],
) -> None:
    code, _, said = evaluate("run.limit=40")
    assert code == 2
    assert (
        "the first 20 questions to finish all failed with the same kind of error (run.max_equal_failures=null goes on)"
        in said
    )
    assert "goes on): KeyError: " in said
    assert said.endswith("stopped.txt in the run folder has the traceback\n")
    assert "return table[id]" not in said
    assert "return table[id]" in Path("r/stopped.txt").read_text()


def test_a_run_whose_server_does_not_come_back_stops(
    evaluate: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_failures, "_OUTAGE_S", 0)
    keys = ("method.failing=0", "engine.shard_size=8", "engine.concurrency=1", "run.max_equal_failures=4")
    code, _, said = evaluate("run.limit=60", "method.gone_from=20", *keys)
    assert code == OUTAGE
    assert "all questions have failed because of a server (run.max_equal_failures=null goes on). When it" in said
    assert "asks the failed questions again: ServiceError: no graph server gave a usable answer" in said
    rows = pl.read_parquet("r/traces/*.parquet")
    assert set(rows["status"]) == {"ok"}, "the shards from before"


@pytest.mark.parametrize("has_begun", [True, False])
def test_no_server_is_an_outage_for_a_run_that_goes_on_and_a_mistake_for_a_new_one(
    has_begun: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(reply()) as url:
        words = ["evaluate", "method=cot", "llm=endpoint", f"llm.base_urls=[{url}]", "llm.model=llama"]
        words += ["dataset.triples=2000", "engine.shard_size=4", f"run.dir={tmp_path / 'r'}"]
        if has_begun:
            assert main([*words, "run.limit=4"]) == 0
    code = main([*words, "run.limit=8", "run.extend=true"] if has_begun else [*words, "run.limit=8"])
    assert "no model server can be used" in capsys.readouterr().err
    assert code == (OUTAGE if has_begun else MISTAKE)


def ids(*questions: str) -> frozenset[tuple[str, str, str]]:
    return frozenset(("data", "test", id) for id in questions)


class TestOutage:
    """When the failures of a server stop a run."""

    GONE = FinishedRows(questions=2, failed=2, errors={"ServiceError: none answers": "ServiceError: none answers"})

    @pytest.fixture
    def seconds(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """The clock: the last element."""
        clock = [1000.0]
        monkeypatch.setattr(repeated_failures.time, "monotonic", lambda: clock[-1])
        return clock

    @pytest.fixture
    def watched(self) -> RepeatedFailures:
        """After a question that did not fail."""
        watched = RepeatedFailures(3)
        watched.check(FinishedRows(questions=1))
        return watched

    def test_a_short_one_does_not(self, watched: RepeatedFailures, seconds: list[float]) -> None:
        for _ in range(100):
            watched.check(self.GONE)
        seconds.append(seconds[0] + 299)
        watched.check(self.GONE)

    def test_a_few_questions_do_not(self, watched: RepeatedFailures, seconds: list[float]) -> None:
        watched.check(self.GONE)
        seconds.append(seconds[0] + 3000)
        watched.check(FinishedRows())
        with pytest.raises(UserError, match="for 5 minutes, all questions have failed because of a server"):
            watched.check(self.GONE)
        assert watched.error.endswith("again:\nServiceError: none answers")

    def test_a_shard_that_is_committed_meanwhile_is_no_question(
        self, watched: RepeatedFailures, seconds: list[float]
    ) -> None:
        for _ in range(3):
            watched.check(self.GONE)
        seconds.append(seconds[0] + 301)
        assert watched.check(FinishedRows(loop_lag_s=0.1)) is None
        with pytest.raises(Outage, match="for 5 minutes"):
            watched.check(self.GONE)

    @pytest.mark.parametrize(
        "other",
        [
            FinishedRows(questions=1),
            FinishedRows(questions=2, failed=1, errors=GONE.errors),
            FinishedRows(questions=1, failed=1, errors={"KeyError: …": "KeyError: 'x'"}),
        ],
    )
    def test_any_other_end_of_a_question_begins_anew(
        self, other: FinishedRows, watched: RepeatedFailures, seconds: list[float]
    ) -> None:
        watched.check(self.GONE)
        watched.check(self.GONE)
        seconds.append(seconds[0] + 3000)
        watched.check(other)
        watched.check(self.GONE)
        watched.check(self.GONE)

    def test_a_few_questions_that_need_no_server_do_not_end_it(
        self, watched: RepeatedFailures, seconds: list[float]
    ) -> None:
        for second in (0, 100, 200):
            seconds.append(1000.0 + second)
            for _ in range(10):
                watched.check(self.GONE)
            watched.check(FinishedRows(questions=1))
        seconds.append(1301.0)
        with pytest.raises(Outage, match="for 5 minutes, nearly all questions have failed because of a server"):
            watched.check(self.GONE)

    def test_a_shard_of_a_ray_worker_is_counted_by_its_rows(
        self, watched: RepeatedFailures, seconds: list[float]
    ) -> None:
        shard = FinishedRows(questions=32, failed=30, errors=self.GONE.errors)
        watched.check(shard)
        seconds.append(seconds[0] + 301)
        with pytest.raises(Outage, match="nearly all questions"):
            watched.check(shard)

    def test_one_that_has_ended_is_no_part_of_a_later_failure(
        self, watched: RepeatedFailures, seconds: list[float]
    ) -> None:
        for _ in range(100):
            watched.check(self.GONE)
        for minute in range(6):
            seconds.append(seconds[0] + 10 + 60 * minute)
            watched.check(FinishedRows(questions=3))
        watched.check(self.GONE)

    def test_an_error_of_a_method_does_not_stop_the_run_in_its_place(
        self, watched: RepeatedFailures, seconds: list[float]
    ) -> None:
        for _ in range(50):
            watched.check(self.GONE)
        seconds.append(seconds[0] + 301)
        watched.check(FinishedRows(questions=1, failed=1, errors={"KeyError: …": "KeyError: 'x'"}))

    def test_refused_requests_are_a_part_of_it(self, watched: RepeatedFailures, seconds: list[float]) -> None:
        """A key that is revoked in the middle of a run makes one, between the trials of servers that are set aside."""
        refused = FinishedRows(questions=1, failed=1, errors={"RequestRefused: 401": "RequestRefused: 401"})
        said = [watched.check(each) for _ in range(5) for each in (self.GONE, refused)]
        assert len(list(filter(None, said))) == 1
        seconds.append(seconds[0] + 301)
        with pytest.raises(UserError, match="for 5 minutes, all questions have failed because of a server"):
            watched.check(refused)

    def test_it_is_said_once_when_it_begins(self, watched: RepeatedFailures, seconds: list[float]) -> None:
        said = [watched.check(self.GONE) for _ in range(6)]
        seconds.append(seconds[0] + 1)
        watched.check(FinishedRows(questions=2))
        said += [watched.check(self.GONE) for _ in range(3)]
        sentence = (
            "the last 6 questions failed because of a server: if nearly all fail for 5 minutes, the run stops "
            "(ServiceError: none answers)"
        )
        assert said == [None, None, sentence, None, None, None, None, None, sentence]

    def test_at_the_start_it_is_said_when_the_run_stops(self) -> None:
        watched = RepeatedFailures(8)
        said = [watched.check(replace(self.GONE, failing=ids(f"{n}a", f"{n}b"))) for n in range(3)]
        sentence = (
            "the first 6 questions failed with the same kind of error: if the first 8 do, the run stops (ServiceError: "
        )
        assert said == [None, None, f"{sentence}none answers)"]

    def test_several_errors_of_servers_at_the_start_are_one_cause(self) -> None:
        """As of two servers that are gone, of which the last one that was asked is named."""
        watched = RepeatedFailures(4)
        for port in ("1", "2"):
            error = f"ServiceError: no model server gave a usable answer; last failure: {port}"
            errors = {error + "x" * int(port): error}
            said = watched.check(FinishedRows(questions=1, failed=1, errors=errors, failing=ids(port)))
        assert said is None
        with pytest.raises(UserError, match=r"^the first 4 questions to finish all failed because of a server \(run"):
            watched.check(replace(self.GONE, failing=ids("a", "b")))

    def test_a_run_that_goes_on_counts_the_questions_of_this_attempt(self) -> None:
        watched = RepeatedFailures(2, is_resumed=True)
        with pytest.raises(
            Outage, match=r"^the first 2 questions of this attempt to finish all failed with the same kind of error"
        ):
            watched.check(replace(self.GONE, failing=ids("a", "b")))

    def test_a_run_of_fewer_questions_is_not_said_to_stop(self) -> None:
        few, enough = (RepeatedFailures(8, questions=questions) for questions in (7, 8))
        said = [watched.check(replace(self.GONE, failing=ids(*"abcde"))) or "" for watched in (few, enough)]
        assert ["the run stops" in each for each in said] == [False, True]

    def test_one_question_that_fails_in_all_configurations_of_a_sweep_does_not_stop_it(self) -> None:
        watched = RepeatedFailures(2, configurations=50)
        one, other = (replace(self.GONE, failing=ids(id)) for id in ("a", "b"))
        assert {watched.check(one) for _ in range(50)} == {None}
        split = RepeatedFailures(50, configurations=50)
        said = [split.check(each) for each in (*[one] * 5, FinishedRows(questions=1), *[other] * 5)]
        assert len(list(filter(None, said))) == 1, "the outage goes on"
        with pytest.raises(Outage, match=r"^the first 2 questions to finish all failed"):
            watched.check(other)

    def test_the_first_questions_that_servers_refuse_are_no_outage(self) -> None:
        watched = RepeatedFailures(1)
        errors = {"RequestRefused: 401": "RequestRefused: 401"}
        with pytest.raises(UserError) as stopped:
            watched.check(FinishedRows(questions=1, failed=1, errors=errors, failing=ids("a")))
        assert not isinstance(stopped.value, Outage)

    def test_calls_that_can_never_be_answered_are_one_cause_and_no_outage(self) -> None:
        watched = RepeatedFailures(2)
        first, second = (
            FinishedRows(questions=1, failed=1, errors={error: error}, failing=ids(error))
            for error in ("Unanswerable: it differs in the input question", "Unanswerable: it differs in the choices")
        )
        watched.check(first)
        with pytest.raises(UserError, match="all failed because the model cannot answer their calls") as stopped:
            watched.check(second)
        assert not isinstance(stopped.value, Outage)

    @pytest.mark.parametrize("may_retry", [True, False])
    def test_failed_questions_are_asked_again_where_that_is_allowed(
        self, may_retry: bool, seconds: list[float]
    ) -> None:
        watched = RepeatedFailures(3, may_retry=may_retry)
        watched.check(FinishedRows(questions=1))
        watched.check(self.GONE)
        seconds.append(seconds[0] + 3000)
        with pytest.raises(Outage) as stopped:
            watched.check(self.GONE)
        assert ("run.retry_failed=true asks the failed questions again" in str(stopped.value)) is may_retry

    def test_null_never_stops(self, seconds: list[float]) -> None:
        watched = RepeatedFailures(None)
        for _ in range(100):
            seconds.append(seconds[-1] + 100)
            watched.check(self.GONE)


def test_a_bound_on_calls_that_raises_fails_its_questions_and_not_the_run(
    evaluate: Callable[..., tuple[int, str, str]],
) -> None:
    code, said, _ = evaluate("run.limit=4", "method.good='0123'", "method.bound=0", "run.max_failed=1")
    assert code == 0
    assert "ZeroDivisionError" in said


def test_a_method_that_exits_fails_its_questions_and_not_the_run(
    evaluate: Callable[..., tuple[int, str, str]],
) -> None:
    code, said, _ = evaluate("run.limit=4", "method.good='012'", "method.exits=true", "run.max_failed=0.5")
    assert code == 0
    assert "SystemExit: 3" in said


def test_a_run_stops_if_several_servers_refuse_every_call_each_in_its_own_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        serving(body('{"error": "bad key"}', status=401)) as one,
        serving(body('{"error": "who are you?"}', status=403)) as other,
    ):
        words = ["method=cot", "llm=endpoint", f"llm.base_urls=[{one},{other}]", "llm.model=llama", "run.limit=100"]
        assert main(["evaluate", *words, "engine.concurrency=4", f"run.dir={tmp_path / 'r'}"]) == 2
    said = capsys.readouterr().err
    assert "the first 20 questions to finish all failed because the servers refuse their requests (run.max" in said
    assert "; put a valid key into the variable OPENAI_API_KEY" in said


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_run_stops_and_names_the_refusal_of_a_server_that_refuses_every_call(
    status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(body('{"error": "not for you"}', status=status)) as url:
        words = ["method=cot", "llm=endpoint", f"llm.base_urls=[{url}]", "llm.model=llama", "run.limit=100"]
        assert main(["evaluate", *words, "engine.shard_size=100", f"run.dir={tmp_path / 'r'}"]) == 2
    said = capsys.readouterr().err
    assert "the first 20 questions to finish all failed with the same kind of error" in said
    assert f"answered {status}: not for you" in said
    assert ("; put a valid key into the variable OPENAI_API_KEY" in said) == (status == 401)
    assert main(["losses", str(tmp_path / "r")]) == 2
    said = capsys.readouterr().err
    assert "holds no answer: its run ended without one, because the first 20 questions to finish all failed" in said
    assert f"answered {status}: not for you" in said


def test_the_note_of_a_stopped_run_with_finished_shards_says_why_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(body('{"error": "not for you"}', status=400)) as url:
        words = ["method=cot", "llm=endpoint", f"llm.base_urls=[{url}]", "llm.model=llama", "run.limit=100"]
        one_by_one = ["engine.shard_size=1", "engine.concurrency=1"]
        assert main(["evaluate", *words, *one_by_one, f"run.dir={tmp_path / 'r'}"]) == 2
    capsys.readouterr()
    assert main(["losses", str(tmp_path / "r")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "in its finished shards are counted, because the first 20 questions to finish all failed" in said
    assert "answered 400: not for you" in said
    assert "run.yaml continues it" in said


def test_a_run_whose_server_is_not_there_names_it(
    closed_port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["method=cot", "llm=endpoint", f"llm.base_urls=[http://127.0.0.1:{closed_port}/v1]", "llm.model=m"]
    assert main(["evaluate", *words, "run.limit=100", f"run.dir={tmp_path / 'r'}"]) == 2
    assert f"http://127.0.0.1:{closed_port}/v1" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("run.limit=19",), ("run.limit=30", "run.max_equal_failures=null")])
def test_the_table_names_the_errors_with_counts(
    evaluate: Callable[..., tuple[int, str, str]], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, table, _ = evaluate(*words)
    assert code == 3
    assert "more questions failed (100.0 %) than run.max_failed allows: exit code 3" in table
    assert main(["score", "r"]) == 0
    scored = capsys.readouterr().out
    assert "more questions failed (100.0 %) than run.max_failed allows" in scored
    assert "exit code" not in scored, "`kgqa score` exits with 0"
    failed = words[0].rpartition("=")[2]
    assert f"{failed} questions failed; run.retry_failed=true runs them again:" in table
    assert f"  {failed} like KeyError: " in table


def test_a_run_goes_on_if_one_of_the_first_questions_succeeds(evaluate: Callable[..., tuple[int, str, str]]) -> None:
    code, table, _ = evaluate("run.limit=40", "method.good='0'", "engine.concurrency=1")
    assert code == 3
    assert "36 questions failed" in table


@pytest.mark.parametrize(("allowed", "expected"), [("0.9", 0), ("0.89", 3)])
def test_the_exit_code_says_whether_too_many_questions_failed(
    evaluate: Callable[..., tuple[int, str, str]], allowed: str, expected: int
) -> None:
    words = ("run.limit=40", "method.good='0'", "engine.concurrency=1", f"run.max_failed={allowed}")
    code, table, _ = evaluate(*words)
    assert code == expected
    assert "36 questions failed" in table
    assert ("exit code 3" in table) == (expected == 3)
    assert evaluate(*words)[0] == expected, "the run is finished, and its exit code is that of its result"


@pytest.mark.parametrize(("failing", "expected"), [(3, 0), (5, 0), (10, 3)])
def test_by_default_five_percent_of_the_questions_may_fail(
    evaluate: Callable[..., tuple[int, str, str]], failing: int, expected: int
) -> None:
    words = ("run.limit=100", f"method.failing={failing}", "engine.concurrency=1", "run.max_equal_failures=null")
    code, table, _ = evaluate(*words)
    assert code == expected
    assert f"{failing} questions failed; run.retry_failed=true runs them again:" in table
    assert " like KeyError: " in table


def test_the_traceback_is_in_the_trace_and_in_show(
    evaluate: Callable[..., tuple[int, str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, table, _ = evaluate("run.limit=3")
    id = table.partition("kgqa show ")[2].partition(")")[0].split()[-1]
    assert main(["show", "r", id]) == 0
    shown = capsys.readouterr().out
    assert "in look_up" in shown
    assert "return table[id]" in shown
    assert main(["show", "r", id, "json=true"]) == 0
    trace = json.loads(capsys.readouterr().out)
    assert trace["status"] == "failed"
    assert "look_up" in trace["steps"][-1]["payload"]["traceback"]


@pytest.mark.parametrize("words", [("dataset=metaqa", "dataset.path=nowhere"), ("run.limit=40",)])
def test_a_command_that_fails_at_once_leaves_no_folder(
    evaluate: Callable[..., tuple[int, str, str]], words: tuple[str, ...]
) -> None:
    code, *_ = evaluate(*words)
    assert code == 2
    assert Path("r").exists() == (words == ("run.limit=40",)), "a run that was begun stays"


@pytest.mark.parametrize("id", ["x?y=1&z", "-2", "~a"])
def test_a_command_shows_a_question_whose_id_looks_like_a_key(
    id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    question = {"id": id, "question": "who made b", "topic_entities": ["b"], "answers": ["c"]}
    Path("questions.jsonl").write_text(json.dumps(question))
    Path("facts.tsv").write_text("b\tmade.by\ta\n")
    data = ("dataset=custom", "dataset.questions=questions.jsonl", "dataset.triples=facts.tsv")
    assert main(["evaluate", "method=tog", "llm=similarity", *data, "run.dir=r", "run.max_failed=1"]) == 0
    assert main(["losses", "r"]) == 0
    command = re.findall(r"kgqa (show .+) shows a question", capsys.readouterr().out)[0]
    assert main(shlex.split(command)) == 0
    assert f"{id} of custom, answered by tog" in capsys.readouterr().out


def test_show_names_what_is_missing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["show", str(tmp_path)]) == 2
    assert "kgqa show RUN QUESTION" in capsys.readouterr().err


def test_a_store_that_goes_away_is_an_outage_in_one_sentence(
    evaluate: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is done after the failure, such as the look for rejected rows, hides what ended the run."""
    opened = MemoryFileSystem._open

    def gone(*_: object, **__: object) -> None:
        raise ConnectionError("connection refused")

    def open_until_a_shard(store: MemoryFileSystem, path: str, *rest: Any, **options: Any) -> Any:
        if path.endswith(".parquet"):
            for name in ("pipe_file", "cat_file", "exists", "info", "rm_file", "ls", "_open", "find"):
                monkeypatch.setattr(MemoryFileSystem, name, gone)
            gone()
        return opened(store, path, *rest, **options)

    monkeypatch.setattr(MemoryFileSystem, "_open", open_until_a_shard)
    code, _, said = evaluate("run.limit=4", "method.good='0123'", f"run.dir=memory://{uuid.uuid4().hex}/run")
    assert code == OUTAGE
    assert "shard-00000.parquet cannot be reached: connection refused" in said
    assert "Traceback" not in said
