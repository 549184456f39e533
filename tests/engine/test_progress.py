"""The progress bar of a run, and how many questions it expects."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from pipeline.config import default
from pipeline.console import with_progress
from pipeline.datasets.custom import Custom
from pipeline.datasets.cwq import CWQ
from pipeline.datasets.grailqa import GrailQA
from pipeline.datasets.grbench import GRBench
from pipeline.datasets.interface import Counted, Dataset
from pipeline.datasets.metaqa import MetaQA
from pipeline.datasets.rog import RoG
from pipeline.datasets.selection import Selection
from pipeline.datasets.subsample import Subsample
from pipeline.datasets.webqsp import WebQSP
from pipeline.engine.components import Backends
from pipeline.engine.progress import Pace, RunProgress, _Rate, _TimeLeft, standings
from pipeline.engine.rejections import Rejections
from pipeline.engine.shard import Part, count_rows
from pipeline.engine.worker_reports import FinishedRows, LongCalls, LongLookups, Standing
from pipeline.errors import UserError
from pipeline.simulation.world import SyntheticWorld
from pipeline.types import Rejected

BACKENDS = [Backends("oracle", "oracle", "graph")]


def shown(total: int, *progress: FinishedRows, terminal: bool = True) -> str:
    """Return the output: the bar on a terminal, with its last state at the end, or plain lines."""
    text = io.StringIO()
    console = Console(file=text, width=200, force_terminal=terminal, color_system=None)
    run_progress = RunProgress(console, total=total, on_opened=lambda backends: None, confidence=0.95)
    with run_progress:
        run_progress.on_opened(BACKENDS)
        for part in progress:
            run_progress.on_progress(part)
    return text.getvalue()


def test_the_bar_shows_the_number_of_questions_and_the_running_score() -> None:
    text = shown(
        8, FinishedRows(questions=2, hits=2.0, scored=2), FinishedRows(questions=2, hits=0.0, scored=1, failed=1)
    )
    assert "4/8" in text
    assert "Hits@1 of 3 so far 66.7" in text


def test_rows_that_could_not_be_read_are_not_missing_at_the_end() -> None:
    text = io.StringIO()
    console = Console(file=text, width=200, force_terminal=True, color_system=None)
    with RunProgress(console, total=6, on_opened=lambda backends: None, confidence=0.95) as run_progress:
        run_progress.on_opened(BACKENDS)
        run_progress.on_progress(FinishedRows(questions=4))
        run_progress.on_complete()
    assert "4/4" in text.getvalue()


def test_the_bar_of_a_resumed_run_begins_with_what_is_done() -> None:
    text = io.StringIO()
    console = Console(file=text, width=200)
    with RunProgress(console, total=8, done=5, on_opened=lambda backends: None, confidence=0.95) as run_progress:
        run_progress.on_opened(BACKENDS)
        run_progress.on_progress(FinishedRows(questions=2, hits=1.0, scored=2))
        run_progress.on_progress(FinishedRows(questions=1, hits=0.0, scored=1))
        run_progress.on_complete()
    assert text.getvalue().startswith("questions 8/8 · ")
    assert "Hits@1 of 3 in this attempt so far 33.3" in text.getvalue()


def test_a_sweep_has_no_score_of_all_its_configurations_together() -> None:
    text = io.StringIO()
    with RunProgress(
        Console(file=text, width=200), total=4, on_opened=lambda backends: None, confidence=0.95, names=["srp", "cot"]
    ) as run_progress:
        run_progress.on_opened(BACKENDS)
        run_progress.on_progress(FinishedRows(questions=2, hits=1.0, scored=2))
    begun, *_ = text.getvalue().splitlines()
    assert (
        begun
        == "up to 4 questions of 2 configurations to answer (each configuration counts its own); run.limit=… asks fewer"
    )
    assert "questions × configurations 2/4" in text.getvalue()
    assert "Hits@1" not in text.getvalue()


def test_a_run_without_gold() -> None:
    text = shown(8, FinishedRows(questions=3))
    assert "3/8" in text
    assert "Hits@1" not in text


def test_without_a_terminal_plain_lines_show_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [FinishedRows(questions=2, hits=2.0, scored=2), FinishedRows(questions=2, hits=0.0, scored=1, failed=1)]
    assert len(shown(2000, *parts, terminal=False).splitlines()) == 1, "at the end"
    monkeypatch.setattr("pipeline.engine.progress.LINE_S", 0.0)
    first, second, last = shown(2000, *parts, terminal=False).splitlines()
    assert first.startswith("questions 2/2,000 · ")
    assert first.endswith("/s · Hits@1 of 2 so far 100")
    assert second.endswith(" · Hits@1 of 3 so far 66.7 · 1 failed")
    assert last.startswith("questions 4/2,000 · ")


def opened(clock: Callable[[], float], *, total: int, names: Sequence[str] = ()) -> RunProgress:
    """The progress of a run that has opened."""
    console = Console(file=io.StringIO(), get_time=clock)
    run_progress = RunProgress(console, total=total, on_opened=lambda backends: None, confidence=0.95, names=names)
    run_progress.on_opened(BACKENDS)
    return run_progress


def progress_of_five(clock: Callable[[], float]) -> RunProgress:
    """The progress of five questions, whose run has opened."""
    return opened(clock, total=5)


@pytest.mark.parametrize(
    ("second", "rows", "left"),
    [(9, 13, ""), (9, 239, ""), (9, 240, " · 891 s left"), (59, 13, ""), (60, 13, " · 110,709 s left")],
)
def test_time_left_is_unknown_until_one_row_in_a_hundred_or_a_minute(second: int, rows: int, left: str) -> None:
    now = 0.0
    run_progress = opened(lambda: now, total=24_000)
    now = float(second)
    run_progress.on_progress(FinishedRows(questions=rows))
    line = re.fullmatch(rf"questions {rows}/24,000 · [\d.]+/(?:s|min)(.*)", run_progress._line())
    assert line is not None
    assert line[1] == left


def test_no_time_left_is_said_of_the_last_rows_of_a_fast_run() -> None:
    now = 0.0
    run_progress = opened(lambda: now, total=2_000)
    now = 250.0
    run_progress.on_progress(FinishedRows(questions=1_999))
    assert run_progress._line() == "questions 1,999/2,000 · 8.0/s"


def test_rate_and_time_left_move_while_a_slow_model_is_awaited() -> None:
    """Each question takes 40 seconds here, which is longer than a window of the last 30 seconds."""
    now = 0.0
    run_progress = progress_of_five(lambda: now)
    seen = []
    for second in range(0, 120, 10):
        now = float(second)
        if second in {40, 80}:
            run_progress.on_progress(FinishedRows(questions=1))
        (task,), columns = run_progress._bar.tasks, run_progress._bar.columns
        seen.append([str(column(task)) for column in columns if isinstance(column, _Rate | _TimeLeft)])
    assert seen[:4] == [["…/s", "…"]] * 4
    assert seen[4:8] == [["1.5/min", left] for left in ("0:02:40", "0:02:30", "0:02:20", "0:02:10")]
    assert seen[8:] == [["1.5/min", left] for left in ("0:02:00", "0:01:50", "0:01:40", "0:01:30")]


def test_time_left_grows_while_the_next_question_is_overdue() -> None:
    pace = Pace()
    pace.finish(4, 40.0)
    assert [pace.left_s(10, elapsed) for elapsed in (40.0, 45.0, 50.0, 100.0)] == [100.0, 95.0, 90.0, 180.0]
    assert [pace.per_second(elapsed) for elapsed in (40.0, 50.0, 100.0)] == [0.1, 0.1, 0.05]
    assert Pace().left_s(10, 30.0) is None


def test_rows_that_finish_in_waves_count_once() -> None:
    """As of 16 workers, each of which finishes a shard every 100 seconds."""
    pace = Pace()
    for wave in (100.0, 200.0):
        for worker in range(1, 17):
            pace.finish(int(wave / 100 - 1) * 512 + 32 * worker, wave + worker / 100)
    assert pace.per_second(201.0) == pytest.approx(5.12, rel=0.01)


def test_a_steady_rate_is_shown_as_it_is() -> None:
    pace = Pace()
    for row in range(1, 1001):
        pace.finish(row, row / 100)
        assert row < 150 or pace.per_second(row / 100) == pytest.approx(100)


def test_the_last_rows_which_take_longest_are_expected_to_take_longer() -> None:
    """A thousand questions took a tenth of a second each, and the last ones a minute each."""
    pace = Pace()
    for row in range(1, 1001):
        pace.finish(row, row / 10)
    assert not pace.is_slowing(101.0)
    for row, second in enumerate((160.0, 220.0, 280.0), start=1001):
        pace.finish(row, second)
    assert pace.is_slowing(280.0)
    assert 20 < (pace.left_s(2, 281.0) or 0) < 60
    assert pace.left_s(2, 340.0) == 60, "as long again as it has been awaited"
    assert pace.left_s(0, 340.0) == 0


def test_only_the_last_quarter_of_the_time_counts() -> None:
    """The questions of one hop took a second each, those of three hops take ten."""
    pace = Pace()
    for second in range(1, 101):
        pace.finish(second, float(second))
    assert pace.per_second(100.0) == 1
    for row in range(1, 31):
        pace.finish(100 + row, 100.0 + 10 * row)
    assert pace.per_second(400.0) == 0.1
    assert pace.left_s(20, 400.0) == 200


def test_questions_whose_calls_were_made_before_the_run_went_on_say_nothing_about_its_speed() -> None:
    now = 0.0
    run_progress = progress_of_five(lambda: now)
    seen = []
    for second, finished in (
        (1, FinishedRows(questions=3, replayed=3)),
        (60, FinishedRows(questions=1)),
        (61, FinishedRows(loop_lag_s=0.1)),
    ):
        now = float(second)
        run_progress.on_progress(finished)
        seen.append(run_progress._line())
    assert seen[0] == "questions 3/5 · …/s"
    assert seen[1] == "questions 4/5 · 1.0/min · 60 s left"
    assert seen[2].startswith("questions 4/5 · 1.0/min · 59 s left")


def test_the_time_left_is_about_right_while_slow_configurations_lag_behind() -> None:
    """CoT and one hop finish first, so the mean says little of those that are left."""
    now = 0.0
    run_progress = opened(lambda: now, total=200, names=["cot", "srp"])
    seen = []
    for second, rows in ((60, {0: (40.0, 40), 1: (5.0, 5)}), (90, {1: (35.0, 35)})):
        now = float(second)
        run_progress.on_progress(FinishedRows(questions=sum(n for _, n in rows.values()), of_configurations=rows))
        seen.append(run_progress._line().rpartition(" · ")[2])
    assert seen == ["about 207 s left", "103 s left"]


def test_a_shard_that_was_nearly_finished_before_the_run_went_on_says_nothing_about_its_speed() -> None:
    now = 0.0
    run_progress = progress_of_five(lambda: now)
    seen = []
    for second, finished in ((1, FinishedRows(questions=3, replayed=2)), (60, FinishedRows(questions=1))):
        now = float(second)
        run_progress.on_progress(finished)
        seen.append(run_progress._line())
    assert seen == ["questions 3/5 · …/s", "questions 4/5 · 2.0/min · 30 s left"]


def test_a_run_that_is_refused_shows_nothing() -> None:
    text = io.StringIO()

    def refuse(backends: Sequence[Backends]) -> None:
        raise UserError("another model")

    run_progress = RunProgress(Console(file=text), total=8, on_opened=refuse, confidence=0.95)
    with pytest.raises(UserError, match="another model"), run_progress:
        run_progress.on_opened(BACKENDS)
    assert text.getvalue() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_questions_that_wait_long_for_a_reply_are_shown(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.engine.progress.LINE_S", 0.0)
    text = io.StringIO()
    console = Console(file=text, width=400, force_terminal=terminal, color_system=None)
    waiting = "waiting more than 30 s for a reply of the model: "
    with RunProgress(console, total=8, on_opened=lambda backends: None, confidence=0.95) as run_progress:
        run_progress.on_opened(BACKENDS)
        for calls in (LongCalls(3, 94.6, "q1"), LongCalls(1, 40.2, "q2\x1b[2J")):
            run_progress.on_standing(Standing(calls))
            run_progress._bar.refresh()
        run_progress.on_standing(
            Standing(LongCalls(1, 50.0, "q3", is_oracle=True), LongLookups(["http://a"], 48.0), {4: 30, 5: 12})
        )
        run_progress._bar.refresh()
        run_progress.on_standing(Standing(None, LongLookups(["http://a", "http://b", "http://c"], 55.4)))
        run_progress._bar.refresh()
        run_progress.on_standing(Standing())
        run_progress.on_progress(FinishedRows(questions=8))
    shown = text.getvalue()
    graph = "waiting more than 30 s for a reply of the graph: http://a"
    assert f"for a reply of the oracle, which asks the graph: 1 question, q3 for 50 s; {graph} for 48 s" in shown
    assert f"{graph} and 2 other servers for 55 s" in shown
    assert "42 more in unfinished shards; waiting more than 30 s for a reply of the oracle" in shown
    assert f"{waiting}3 questions, q1 for 95 s" in shown
    assert f"{waiting}1 question, q2\ufffd[2J for 40 s" in shown
    assert waiting not in shown.splitlines()[-1]


def test_progress_is_summed() -> None:
    run_progress = RunProgress(Console(quiet=True), total=3, on_opened=lambda backends: None, confidence=0.95)
    run_progress.on_progress(FinishedRows(questions=1, loop_lag_s=0.2))
    run_progress.on_progress(FinishedRows(questions=2, loop_lag_s=0.1))
    assert (run_progress.sum.questions, run_progress.sum.loop_lag_s) == (3, 0.2)


class Some:
    """A dataset of `questions` questions, which knows their number or must be read."""

    def __init__(self, questions: int, *, counted: bool) -> None:
        self.questions = questions
        self.counted = counted

    def count(self) -> int | None:
        return self.questions if self.counted else None

    def examples(self, reject: object) -> Iterator[object]:
        assert not self.counted, "only a dataset that does not know its number is read"
        return iter(range(self.questions))


def left_of(parts: Sequence[Part], *, size: int, finished: Collection[int]) -> int:
    total, done = count_rows(parts, size=size, finished=finished)
    return total - done


def part(
    questions: int, limit: int | None = None, configurations: tuple[int, ...] = (0,), *, counted: bool = True
) -> Part:
    return Part(configurations, Some(questions, counted=counted), Selection(limit))  # type: ignore[arg-type]


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize(
    ("count", "limit", "finished", "left"),
    [
        (100, None, [], 100),
        (100, 30, [], 30),
        (20, 30, [], 20),
        (100, None, [0, 4], 68),
        (100, None, [6], 96),
        (30, 30, [0, 1], 0),
    ],
)
def test_rows_of_unfinished_shards(
    count: int, limit: int | None, finished: list[int], left: int, *, counted: bool
) -> None:
    assert left_of([part(count, limit, counted=counted)], size=16, finished=finished) == left


def test_rows_of_several_configurations_and_datasets() -> None:
    parts = [
        part(20, configurations=(0, 2)),
        part(40, limit=33, configurations=(1,)),
    ]  # shards 0 and 1, then 2, 3 and 4
    assert left_of(parts, size=16, finished=[]) == 2 * 20 + 33
    assert left_of(parts, size=16, finished=[1, 4]) == 2 * 16 + 32
    assert left_of([*parts, part(7, counted=False)], size=16, finished=[]) == 2 * 20 + 33 + 7


def synthetic(folder: Path) -> Dataset:
    return default(SyntheticWorld, triples=2000, questions=9, types=("count",))


def metaqa(folder: Path) -> Dataset:
    (folder / "1-hop").mkdir()
    (folder / "1-hop" / "qa_test.txt.gz").write_bytes(gzip.compress(b"who wrote [X]\tAnn\nwhat is [Y]\tBob|Cy\n"))
    return default(MetaQA, path=folder, hops=1)


def custom(folder: Path) -> Dataset:
    rows = [{"id": f"q{n}", "question": "?", "topic_entities": [], "answers": [], "level": n % 2} for n in range(5)]
    (folder / "rows.jsonl").write_text("\n\n".join(map(json.dumps, rows)))
    return default(Custom, triples=folder / "none", questions=folder / "rows.jsonl")


def grbench(folder: Path) -> Dataset:
    rows = [{"qid": str(n), "question": "?", "answer": "x"} for n in range(3)]
    (folder / "dblp").mkdir()
    (folder / "dblp" / "data.json").write_text("\n".join(map(json.dumps, rows)))
    return default(GRBench, path=folder, domain="dblp")


def rog(folder: Path) -> Dataset:
    rows = {"id": ["a", "b"], "question": ["?", "?"], "answer": [["x"], ["y"]], "q_entity": [["z"], ["z"]]}
    for part in ("0", "1"):
        frame = pl.DataFrame({**rows, "id": [id + part for id in rows["id"]], "graph": [[["h", "r", "t"]]] * 2})
        frame.write_parquet(folder / f"test-{part}.parquet")
    return default(RoG, path=folder)


@pytest.mark.parametrize("make", [synthetic, metaqa, custom, grbench, rog])
def test_the_count_of_a_dataset_is_the_number_of_its_questions(make: object, tmp_path: Path) -> None:
    dataset = make(tmp_path)  # type: ignore[operator]
    assert isinstance(dataset, Counted)
    assert dataset.count() == len(list(dataset.examples(lambda row: None))) > 1


def test_a_filter_makes_the_count_unknown(tmp_path: Path) -> None:
    custom(tmp_path)
    filtered = default(Custom, triples=tmp_path / "none", questions=tmp_path / "rows.jsonl", filter={"level": 1})
    assert filtered.count() is None


def filtered(folder: Path) -> Dataset:
    custom(folder)
    return default(Custom, triples=folder / "none", questions=folder / "rows.jsonl", filter={"level": 1})


def cwq(folder: Path) -> Dataset:
    rows = [{"ID": str(n), "question": "?", "answers": [{"answer": "x"}]} for n in range(3)]
    (folder / "ComplexWebQuestions_test.json").write_text(json.dumps(rows))
    return default(CWQ, path=folder)


def webqsp(folder: Path) -> Dataset:
    rows = [{"QuestionId": str(n), "RawQuestion": "?", "Parses": []} for n in range(3)]
    (folder / "WebQSP.test.json").write_text(json.dumps({"Questions": rows}))
    return default(WebQSP, path=folder)


def grailqa(folder: Path) -> Dataset:
    rows = [{"qid": n, "question": "?", "answer": [], "graph_query": {"nodes": [], "edges": []}} for n in range(3)]
    (folder / "grailqa_v1.0_dev.json").write_text(json.dumps(rows))
    return default(GrailQA, path=folder)


def sampled(folder: Path) -> Dataset:
    return default(Subsample, dataset=synthetic(folder), questions=4, limit=None)


@pytest.mark.parametrize("make", [synthetic, metaqa, custom, grbench, rog, filtered, cwq, webqsp, grailqa, sampled])
def test_the_bar_knows_the_number_of_questions_of_every_dataset(make: object, tmp_path: Path) -> None:
    dataset = make(tmp_path)  # type: ignore[operator]
    questions = len(list(dataset.examples(lambda row: None)))
    assert questions > 1
    assert left_of([Part((0,), dataset, Selection())], size=16, finished=[]) == questions
    assert left_of([Part((0,), dataset, Selection(1))], size=16, finished=[]) == 1


def test_rejected_rows_are_listed_until_the_input_is_fixed(tmp_path: Path) -> None:
    file = tmp_path / "rejected.jsonl"
    with Rejections(file, strict=False) as rejections:
        rejections.add(Rejected("rows.jsonl", 3, "no id"))
    assert json.loads(file.read_text()) == {"file": "rows.jsonl", "line": 3, "reason": "no id", "unit": "line"}
    assert rejections.remarks() == [f"1 row of rows.jsonl could not be read: {file} lists them with reasons"]
    with Rejections(file, strict=False) as rejections:
        pass
    assert not file.exists()
    assert rejections.remarks() == []


def printed_standings(total: FinishedRows, confidence: float) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=80).print(standings(total, [f"sweep {n}" for n in range(10)], confidence))
    return text.getvalue().splitlines()


def test_the_leading_configurations_of_a_sweep_have_intervals() -> None:
    rows = [FinishedRows(questions=1, of_configurations={n: (float(hit), 1)}) for n in range(10) for hit in range(2)]
    rows += [FinishedRows(questions=1, of_configurations={7: (1.0, 1)})]
    total = FinishedRows()
    for row in rows:
        total = total + row
    lines, wider = printed_standings(total, confidence=0.95), printed_standings(total, confidence=0.99)
    assert lines[1].split()[:4] == ["sweep", "7", "3", "66.7"]
    assert lines[1].split()[4] == "20.8–93.9"  # Wilson's interval of 2 out of 3
    assert wider[1].split()[4] == "14.4–96.0", "as evaluation.confidence says"
    assert lines[-1].strip() == "… 2 more"


def test_a_name_is_printed_without_markup_and_control_characters() -> None:
    text = io.StringIO()
    total = FinishedRows(questions=1, of_configurations={0: (1, 1)})
    Console(file=text, width=80).print(standings(total, ["[red]a[/red]\x1b[2J\x07"], 0.95))
    assert "[red]a[/red]\ufffd[2J\ufffd" in text.getvalue()


def test_long_preparations_are_said_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr("pipeline.console.time.monotonic", lambda: float(next(clock)))
    printed = io.StringIO()
    shown = with_progress(range(5), "composing", Console(file=printed, width=200))
    assert list(shown) == [*range(5)]
    assert printed.getvalue().splitlines() == ["composing: 1/5 · 160 s left", "composing: 3/5 · 53 s left"]
