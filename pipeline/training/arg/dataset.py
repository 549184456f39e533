"""Reads the training texts of a collection from its traces, and reports on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from pipeline.evaluation.score_tables import plain_table
from pipeline.methods.arg.tokens import CLASSES, CLOSE, OPEN, UNREASONABLE, Kind, find_tokens
from pipeline.methods.rendering import one_line
from pipeline.percentages import percentage
from pipeline.text import counted
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.training.rows import decisions, rejection

_COLUMNS = ("question_id", "dataset", "split", "question", "status", "error", "steps", "texts")


@dataclass
class Report:
    """Counts of the questions and of the training texts made from them."""

    questions: int = 0
    samples: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    """Questions without a text, by reason."""
    discarded_paths: Counter[str] = field(default_factory=Counter)
    """Reference paths that gave no text, by reason. Another path of the same question may have given one."""
    path_lengths: Counter[int] = field(default_factory=Counter)
    """Texts by the number of hops of their reference path."""
    text_hops: Counter[int] = field(default_factory=Counter)
    """Texts by the number of hops they contain: fewer than the path has if the text stops early."""
    stopped_early: int = 0
    """Texts that end after an unreasonable path."""
    labels: dict[Kind, Counter[str]] = field(
        default_factory=lambda: {kind: Counter(dict.fromkeys(members, 0)) for kind, members in CLASSES.items()}
    )
    """The count of each reflection token, by class."""
    answers: Counter[int] = field(default_factory=Counter)
    """Texts by their number of answers."""
    characters: int = 0
    longest: int = 0
    """Characters of the longest text."""

    def add(self, row: Mapping[str, Any]) -> None:
        """Count one training text."""
        self.samples += 1
        self.path_lengths[len(row["path"])] += 1
        self.text_hops[len(row["hops"])] += 1
        self.stopped_early += row["hops"][-1]["rationality"] == UNREASONABLE
        self.answers[len(row["answers"])] += 1
        self.characters += len(row["text"])
        self.longest = max(self.longest, len(row["text"]))
        for piece in _between_paragraphs(row["text"], row["paragraphs"]):
            for token in find_tokens(piece):
                self.labels[token.kind][token.text] += 1

    def document(self) -> dict[str, Any]:
        """Return the report as JSON: counts, and the share of each token in its class."""
        return {
            "questions": self.questions,
            "samples": self.samples,
            "rejected": dict(self.rejected.most_common()),
            "discarded_paths": dict(self.discarded_paths.most_common()),
            "path_lengths": _in_order(self.path_lengths),
            "told_hops": _in_order(self.text_hops),
            "stopped_early": self.stopped_early,
            "answers": _in_order(self.answers),
            "labels": self.labels,
            "shares": {
                kind: {token: _share(count, of) for token, count in of.items()} for kind, of in self.labels.items()
            },
            "characters": self.characters,
            "longest": self.longest,
        }


def read_texts(folder: RunFolder, report: Report) -> Iterator[dict[str, Any]]:
    """Yield the training texts in a collection's traces, and count them and the rejected questions in `report`."""
    for shard in read_shards(folder, _COLUMNS):
        for trace in shard.iter_rows(named=True):
            report.questions += 1
            report.discarded_paths.update(pruned["reason"] for _, pruned in decisions(trace, "pruned"))
            events = dict(decisions(trace, "collected", "rejected"))
            if (collected := events.get("collected")) is not None:
                row = _row(trace, collected)
                report.add(row)
                yield row
            else:
                report.rejected[rejection(trace, events)] += 1


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
    """Yield the start and end of each paragraph, without its tags."""
    position = 0
    while (begin := text.find(OPEN, position)) >= 0:
        begin += len(OPEN)
        position = text.index(CLOSE, begin)
        yield [begin, position]


def _between_paragraphs(text: str, paragraphs: Iterable[list[int]]) -> Iterator[str]:
    """Yield the pieces of a text around its paragraphs."""
    position = 0
    for begin, end in paragraphs:
        yield text[position:begin]
        position = end
    yield text[position:]


def _in_order(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(number): count for number, count in sorted(counts.items())}


def _share(count: int, of: Mapping[str, int]) -> float:
    return round(count / max(1, sum(of.values())), 4)


def report_table(report: Report) -> Table:
    """Return the report as a table for the terminal."""
    table = plain_table(f"{report.samples:,} training texts from {counted(report.questions, 'question')}")
    table.add_column("counted", overflow="fold")
    table.add_column("number", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for label, count, whole in _lines(report):
        table.add_row(Text(label), f"{count:,}", f"{percentage(count / whole)} %" if whole else "")
    return table


def _lines(report: Report) -> Iterator[tuple[str, int, int]]:
    """Yield a label, a count, and the whole that the count is a share of, or 0."""
    for reason, count in report.rejected.most_common():
        yield f"rejected: {reason}", count, report.questions
    for reason, count in report.discarded_paths.most_common():
        yield f"discarded path: {reason}", count, 0
    for hops, count in sorted(report.path_lengths.items()):
        yield f"path of {counted(hops, 'hop')}", count, report.samples
    yield "texts that stop early at an unreasonable path", report.stopped_early, report.samples
    for kind, counts in report.labels.items():
        for token, count in counts.items():
            yield f"{kind} {token}", count, counts.total()
    yield "average characters per text", round(report.characters / max(1, report.samples)), 0
    yield "characters of the longest text", report.longest, 0
