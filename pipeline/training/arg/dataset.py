"""The training texts of a collection, read off its traces, and the report on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from rich.table import Table
from rich.text import Text

from pipeline.evaluation.table import plain_table
from pipeline.methods.arg.tokens import CLASSES, CLOSE, OPEN, UNREASONABLE, Kind, find_marks
from pipeline.methods.rendering import one_line
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.training.rows import write_report, write_rows

_COLUMNS = ("question_id", "dataset", "split", "question", "status", "error", "steps", "texts")


@dataclass
class Report:
    """What became of the questions, and what the texts made of them hold."""

    questions: int = 0
    samples: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    """Questions without a text, by reason."""
    discarded_paths: Counter[str] = field(default_factory=Counter)
    """Reference paths that gave no text, by reason: another path of the question may have."""
    path_lengths: Counter[int] = field(default_factory=Counter)
    """Texts by the hops of their reference path."""
    told_hops: Counter[int] = field(default_factory=Counter)
    """Texts by the hops that they tell of: fewer where they stop early."""
    stopped_early: int = 0
    """Texts that end after an unreasonable path."""
    labels: dict[Kind, Counter[str]] = field(
        default_factory=lambda: {kind: Counter(dict.fromkeys(members, 0)) for kind, members in CLASSES.items()}
    )
    """How often each token was written, by its class."""
    answers: Counter[int] = field(default_factory=Counter)
    """Texts by how many answers they give."""
    characters: int = 0
    longest: int = 0
    """Characters of the longest text."""

    def add(self, row: Mapping[str, Any]) -> None:
        """Count one training text."""
        self.samples += 1
        self.path_lengths[len(row["path"])] += 1
        self.told_hops[len(row["hops"])] += 1
        self.stopped_early += row["hops"][-1]["rationality"] == UNREASONABLE
        self.answers[len(row["answers"])] += 1
        self.characters += len(row["text"])
        self.longest = max(self.longest, len(row["text"]))
        written = _written(row["text"], row["paragraphs"])
        for mark in (mark for piece in written for mark in find_marks(piece)):
            self.labels[mark.kind][mark.token] += 1

    def document(self) -> dict[str, Any]:
        """The report as JSON: counts, and the share of each token in its class."""
        return {
            "questions": self.questions,
            "samples": self.samples,
            "rejected": dict(self.rejected.most_common()),
            "discarded_paths": dict(self.discarded_paths.most_common()),
            "path_lengths": _in_order(self.path_lengths),
            "told_hops": _in_order(self.told_hops),
            "stopped_early": self.stopped_early,
            "answers": _in_order(self.answers),
            "labels": self.labels,
            "shares": {
                kind: {token: _share(count, of) for token, count in of.items()} for kind, of in self.labels.items()
            },
            "characters": self.characters,
            "longest": self.longest,
        }


def write_texts(folder: RunFolder, output: Path) -> Report:
    """Write a finished collection's texts, in the order of its questions, and their report. Raises StorageError."""
    report = Report()
    write_rows(read_texts(folder, report), output)
    write_report(report.document(), output)
    return report


def read_texts(folder: RunFolder, report: Report) -> Iterator[dict[str, Any]]:
    """The training texts in a collection's traces; the report counts them, and why every other question gave none."""
    for shard in read_shards(folder, _COLUMNS):
        for trace in shard.iter_rows(named=True):
            report.questions += 1
            decided = dict(_decisions(trace, report))
            if (collected := decided.get("collected")) is not None:
                row = _row(trace, collected)
                report.add(row)
                yield row
            elif (rejected := decided.get("rejected")) is not None:
                report.rejected[rejected["reason"]] += 1
            else:
                report.rejected[f"{trace['status']}: {(trace['error'] or '').partition(':')[0]}"] += 1


def _decisions(trace: Mapping[str, Any], report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    for step, text in zip(trace["steps"], trace["texts"], strict=True):
        if step["role"] == "pruned":
            report.discarded_paths[orjson.loads(text["payload"])["reason"]] += 1
        elif step["role"] in ("collected", "rejected"):
            yield step["role"], orjson.loads(text["payload"])


def _row(trace: Mapping[str, Any], collected: dict[str, Any]) -> dict[str, Any]:
    text = collected.pop("text")
    return {
        "id": trace["question_id"],
        "dataset": trace["dataset"],
        "split": trace["split"],
        "question": one_line(trace["question"]),
        "text": text,
        "loss": [[0, len(text)]],
        "paragraphs": list(_paragraphs(text)),
        **collected,
    }


def _paragraphs(text: str) -> Iterator[list[int]]:
    """Where the text between each pair of paragraph marks begins and ends."""
    at = 0
    while (begin := text.find(OPEN, at)) >= 0:
        begin += len(OPEN)
        at = text.index(CLOSE, begin)
        yield [begin, at]


def _written(text: str, paragraphs: Iterable[list[int]]) -> Iterator[str]:
    """The pieces of a text between its paragraphs."""
    at = 0
    for begin, end in paragraphs:
        yield text[at:begin]
        at = end
    yield text[at:]


def _in_order(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(number): count for number, count in sorted(counts.items())}


def _share(count: int, of: Mapping[str, int]) -> float:
    return round(count / max(1, sum(of.values())), 4)


def report_table(report: Report) -> Table:
    """The report for people."""
    table = plain_table(f"{report.samples:,} training texts from {report.questions:,} questions")
    table.add_column("what", overflow="fold")
    table.add_column("number", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for what, count, whole in _lines(report):
        table.add_row(Text(what), f"{count:,}", f"{100 * count / whole:.1f} %" if whole else "")
    return table


def _lines(report: Report) -> Iterator[tuple[str, int, int]]:
    for reason, count in report.rejected.most_common():
        yield f"rejected: {reason}", count, report.questions
    for reason, count in report.discarded_paths.most_common():
        yield f"path passed over: {reason}", count, 0
    for hops, count in sorted(report.path_lengths.items()):
        yield f"path of {hops} hop{'s' * (hops != 1)}", count, report.samples
    yield "stopped early at an unreasonable path", report.stopped_early, report.samples
    for kind, counts in report.labels.items():
        for token, count in counts.items():
            yield f"{kind} {token}", count, counts.total()
    yield "characters a text", round(report.characters / max(1, report.samples)), 0
    yield "characters of the longest", report.longest, 0
