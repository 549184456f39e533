"""Makes the rows for RoG's planner and reader from the traces of a collection, and a report (specification §7.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from pipeline.errors import ParseError
from pipeline.evaluation.score_tables import plain_table
from pipeline.llm.prompt import Prompt
from pipeline.methods.rog.plan import PlanPath, write_path
from pipeline.methods.rog.read import ReadPaths
from pipeline.normalisation import normalise
from pipeline.text import counted
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.training.rog.collection import RoGCollection
from pipeline.training.rows import decisions, rejection
from pipeline.types import Question

_COLUMNS = ("question_id", "dataset", "split", "question", "status", "error", "steps", "texts")


@dataclass
class Report:
    """Counts of the questions and of the rows made from them."""

    questions: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    """Rows by role."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Questions without a row, by reason."""
    without_path: int = 0
    """Questions without a gold relation path: they give a row of the reader alone."""
    unreadable_answers: int = 0
    """Questions without a row of the reader, because it would not read an answer as it is written."""
    path_lengths: Counter[int] = field(default_factory=Counter)
    """Rows of the planner by the number of relations in the path."""
    instances: int = 0
    """Chains that the gold relation paths lead to."""
    dropped: int = 0
    """Chains for which a prompt had no room."""

    def document(self) -> dict[str, Any]:
        """Return the report as JSON."""
        in_order = {str(length): count for length, count in sorted(self.path_lengths.items())}
        return {**asdict(self), "rows": dict(self.rows), "rejected": dict(self.rejected), "path_lengths": in_order}


def table(report: Report) -> Table:
    """Return the report as a table for the terminal."""
    title = f"{counted(report.rows.total(), 'row')} from {counted(report.questions, 'question')}"
    shown = plain_table(title)
    shown.add_column("counted", overflow="fold")
    shown.add_column("number", justify="right", no_wrap=True)
    for label, count in _lines(report):
        shown.add_row(Text(label), f"{count:,}")
    return shown


def _lines(report: Report) -> Iterator[tuple[str, int]]:
    for role, count in sorted(report.rows.items()):
        yield f"rows of {role}", count
    for length, count in sorted(report.path_lengths.items()):
        yield f"paths of {counted(length, 'relation')}", count
    yield "questions without a path", report.without_path
    yield "questions with an answer that would not be read as it is", report.unreadable_answers
    yield "chains that the paths lead to", report.instances
    yield "chains for which a prompt had no room", report.dropped
    for reason, count in report.rejected.most_common():
        yield f"rejected: {reason}", count


def read_rows(folder: RunFolder, collection: RoGCollection, report: Report) -> Iterator[dict[str, Any]]:
    """Yield the rows in a collection's traces, and count them and the rejected questions in `report`."""
    for shard in read_shards(folder, _COLUMNS):
        for trace in shard.iter_rows(named=True):
            report.questions += 1
            events = dict(decisions(trace, "collected", "rejected"))
            if (collected := events.get("collected")) is not None:
                yield from _of_question(trace, collected, collection, report)
            else:
                report.rejected[rejection(trace, events)] += 1


def _of_question(
    trace: Mapping[str, Any], collected: Mapping[str, Any], collection: RoGCollection, report: Report
) -> Iterator[dict[str, Any]]:
    """Yield a row of the planner for each path, or for each of its instances, and one of the reader."""
    question = Question(trace["question_id"], trace["dataset"], trace["split"], trace["question"])
    report.without_path += not collected["paths"]
    report.instances += collected["instances"]
    report.dropped += collected["dropped"]
    planner = PlanPath(question, collection.wording.plan)
    for path, right in zip(collected["paths"], collected["right"], strict=True):
        for _ in range(1 if collection.dedupe_paths else right):
            report.path_lengths[len(path)] += 1
            yield _row(planner, write_path(path), report)
    reader = ReadPaths(question, False, tuple(collected["lines"]), (), {}, collection.wording.read)
    if (text := _write_answers(reader, collected["answers"])) is None:
        report.unreadable_answers += 1
    else:
        yield _row(reader, text, report)


def _row(prompt: PlanPath | ReadPaths, text: str, report: Report) -> dict[str, Any]:
    report.rows[prompt.role] += 1
    question = prompt.question
    messages = [message._asdict() for message in prompt.messages()]
    return {
        "id": question.id,
        "dataset": question.dataset,
        "split": question.split,
        "role": prompt.role,
        "messages": [*messages, {"role": "assistant", "content": text}],
    }


def _write_answers(reader: Prompt[Any], answers: list[str]) -> str | None:
    """Return the answers, one on each line, if the reader reads them so; else None."""
    text = "\n".join(answers)
    try:
        read = reader.parse(text).texts
    except ParseError:
        return None
    return text if list(map(normalise, read)) == list(dict.fromkeys(map(normalise, answers))) else None
