"""What is shown while a run goes on, and how many questions it expects."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from pipeline.datasets.custom import Custom
from pipeline.datasets.grbench import GRBench
from pipeline.datasets.metaqa import MetaQA
from pipeline.datasets.port import Counted, Dataset
from pipeline.datasets.rog import RoG
from pipeline.datasets.sample import SampleWorld
from pipeline.datasets.webqsp import WebQSP
from pipeline.engine.rejections import Rejections
from pipeline.engine.shard import Part, Progress, rows_left
from pipeline.engine.watch import Watch, standings
from pipeline.engine.worker import Served
from pipeline.errors import UserError
from pipeline.types import Rejected

SERVED = [Served("oracle", "oracle", "graph")]


def shown(total: int | None, *progress: Progress, terminal: bool = True) -> str:
    """The bar on a terminal, its last state at the end; plain lines elsewhere."""
    text = io.StringIO()
    console = Console(file=text, width=200, force_terminal=terminal, color_system=None)
    watch = Watch(console, total=total, on_served=lambda served: None)
    with watch:
        watch.on_served(SERVED)
        for part in progress:
            watch.on_progress(part)
    return text.getvalue()


def test_the_bar_knows_how_much_there_is_and_how_good_it_is() -> None:
    text = shown(8, Progress(questions=2, hits=2.0, scored=2), Progress(questions=2, hits=0.0, scored=1, failed=1))
    assert "4/8" in text
    assert "Hits@1 0.667" in text


def test_without_a_total_and_without_gold() -> None:
    text = shown(None, Progress(questions=3))
    assert "3/?" in text
    assert "Hits@1 –" in text


def test_where_there_is_no_terminal_plain_lines_say_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [Progress(questions=2, hits=2.0, scored=2), Progress(questions=2, hits=0.0, scored=1, failed=1)]
    assert len(shown(2000, *parts, terminal=False).splitlines()) == 1, "at the end"
    monkeypatch.setattr("pipeline.engine.watch._LINE_S", 0.0)
    first, second, last = shown(2000, *parts, terminal=False).splitlines()
    assert first.startswith("questions 2/2,000 · ")
    assert first.endswith(("/s · Hits@1 1.000", " s left · Hits@1 1.000"))
    assert second.endswith(" · Hits@1 0.667 · 1 failed")
    assert last.startswith("questions 4/2,000 · ")
    assert shown(None, *parts, terminal=False).startswith("questions 2/? · ")


def test_nothing_is_shown_of_a_run_that_never_began() -> None:
    text = io.StringIO()

    def refuse(served: Sequence[Served]) -> None:
        raise UserError("another model")

    watch = Watch(Console(file=text), total=8, on_served=refuse)
    with pytest.raises(UserError, match="another model"), watch:
        watch.on_served(SERVED)
    assert text.getvalue() == ""


def test_what_is_noted_is_the_sum() -> None:
    watch = Watch(Console(quiet=True), total=None, on_served=lambda served: None)
    watch.on_progress(Progress(questions=1, llm_calls=3, loop_lag_s=0.2))
    watch.on_progress(Progress(questions=2, llm_calls=4, loop_lag_s=0.1))
    assert (watch.sum.questions, watch.sum.llm_calls, watch.sum.loop_lag_s) == (3, 7, 0.2)


class Some:
    """A dataset that knows how many questions it has, or does not."""

    def __init__(self, questions: int | None) -> None:
        self.questions = questions

    def count(self) -> int | None:
        return self.questions


def part(questions: int | None, limit: int | None = None, points: tuple[int, ...] = (0,)) -> Part:
    return Part(points, Some(questions), limit)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "limit", "finished", "left"),
    [
        (100, None, [], 100),
        (100, 30, [], 30),
        (20, 30, [], 20),
        (None, 30, [], 30),
        (None, None, [], None),
        (100, None, [0, 4], 68),
        (100, None, [6], 96),
        (None, 30, [0, 1], 0),
        (None, None, [0, 1], None),
    ],
)
def test_rows_left(count: int | None, limit: int | None, finished: list[int], left: int | None) -> None:
    assert rows_left([part(count, limit)], size=16, finished=finished) == left


def test_rows_left_of_several_points_and_datasets() -> None:
    parts = [part(20, points=(0, 2)), part(40, limit=33, points=(1,))]  # shards 0 and 1, then 2, 3 and 4
    assert rows_left(parts, size=16, finished=[]) == 2 * 20 + 33
    assert rows_left(parts, size=16, finished=[1, 4]) == 2 * 16 + 32
    assert rows_left([*parts, part(None)], size=16, finished=[]) is None


def test_a_dataset_need_not_count() -> None:
    assert rows_left([Part((0,), object(), None)], size=16, finished=[0]) is None  # type: ignore[arg-type]
    assert not isinstance(WebQSP(path=Path("x")), Counted)


def sample(folder: Path) -> Dataset:
    return SampleWorld(triples=2000, questions=9, types=("count",))


def metaqa(folder: Path) -> Dataset:
    (folder / "1-hop").mkdir()
    (folder / "1-hop" / "qa_test.txt.gz").write_bytes(gzip.compress(b"who wrote [X]\tAnn\nwhat is [Y]\tBob|Cy\n"))
    return MetaQA(path=folder, hops=1)


def custom(folder: Path) -> Dataset:
    rows = [{"id": f"q{n}", "question": "?", "topic_entities": [], "answers": [], "level": n % 2} for n in range(5)]
    (folder / "rows.jsonl").write_text("\n\n".join(map(json.dumps, rows)))
    return Custom(triples=folder / "none", questions=folder / "rows.jsonl")


def grbench(folder: Path) -> Dataset:
    rows = [{"qid": str(n), "question": "?", "answer": "x"} for n in range(3)]
    (folder / "dblp").mkdir()
    (folder / "dblp" / "data.json").write_text("\n".join(map(json.dumps, rows)))
    return GRBench(path=folder, domain="dblp")


def rog(folder: Path) -> Dataset:
    rows = {"id": ["a", "b"], "question": ["?", "?"], "answer": [["x"], ["y"]], "q_entity": [["z"], ["z"]]}
    for part in ("0", "1"):
        frame = pl.DataFrame({**rows, "id": [id + part for id in rows["id"]], "graph": [[["h", "r", "t"]]] * 2})
        frame.write_parquet(folder / f"test-{part}.parquet")
    return RoG(path=folder)


@pytest.mark.parametrize("make", [sample, metaqa, custom, grbench, rog])
def test_a_dataset_counts_what_it_reads(make: object, tmp_path: Path) -> None:
    dataset = make(tmp_path)  # type: ignore[operator]
    assert isinstance(dataset, Counted)
    assert dataset.count() == len(list(dataset.examples(lambda row: None))) > 1


def test_a_filter_makes_the_count_unknown(tmp_path: Path) -> None:
    custom(tmp_path)
    filtered = Custom(triples=tmp_path / "none", questions=tmp_path / "rows.jsonl", filter={"level": 1})
    assert filtered.count() is None


def test_rejected_rows_are_listed_and_a_mended_input_clears_the_list(tmp_path: Path) -> None:
    file = tmp_path / "rejected.jsonl"
    with Rejections(file, strict=False) as rejections:
        rejections.add(Rejected("rows.jsonl", 3, "no id"))
    assert json.loads(file.read_text()) == {"file": "rows.jsonl", "line": 3, "reason": "no id"}
    assert rejections.remarks() == [f"1 row could not be read: {file} says which and why"]
    with Rejections(file, strict=False) as rejections:
        pass
    assert not file.exists()
    assert rejections.remarks() == []


def test_the_leading_points_of_a_sweep_with_their_intervals() -> None:
    rows = [Progress(questions=1, of_points={point: (float(hit), 1)}) for point in range(10) for hit in range(2)]
    rows += [Progress(questions=1, of_points={7: (1.0, 1)})]
    total = Progress()
    for row in rows:
        total = total + row
    text = io.StringIO()
    Console(file=text, width=80).print(standings(total, [f"point {n}" for n in range(10)]))
    lines = text.getvalue().splitlines()
    assert lines[1].split()[:4] == ["point", "7", "3", "66.7"]
    assert lines[1].split()[4] == "20.8–93.9"  # Wilson's interval of 2 out of 3
    assert lines[-1].strip() == "… 2 more"


def test_names_of_points_are_neither_markup_nor_commands() -> None:
    text = io.StringIO()
    total = Progress(questions=1, of_points={0: (1, 1)})
    Console(file=text, width=80).print(standings(total, ["[red]a[/red]\x1b[2J\x07"]))
    assert "[red]a[/red]\ufffd[2J\ufffd" in text.getvalue()
