"""What models were asked and what they replied, read off the traces of runs: supervised fine-tuning data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass
from rich.table import Table
from rich.text import Text

from pipeline.evaluation.table import plain_table
from pipeline.llm.prompt import Message
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.training.rows import write_report, write_rows
from pipeline.training.solved import Material, is_held_out, read_held_out

_COLUMNS = ("question_id", "dataset", "split", "question", "status", "hits_at_1", "steps", "texts")


@checked_dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Selection:
    """Which calls are taken. The keys are described in `conf/collect_calls.yaml`."""

    right_only: bool = True
    joined: bool = False


@dataclass
class OfRole:
    """The rows of one role."""

    calls: int = 0
    prompt_characters: int = 0
    text_characters: int = 0
    longest: int = 0
    """Characters of the longest prompt and text together."""


@dataclass
class Report:
    """What became of the calls."""

    questions: int = 0
    """Rows of the traces: a question counts once for each point that asked it."""
    calls: int = 0
    roles: dict[str, OfRole] = field(default_factory=dict)
    """The calls that were taken."""
    rows: int = 0
    """Rows of the file."""
    rejected: Counter[str] = field(default_factory=Counter)
    """The calls that were not, by reason."""

    @property
    def taken(self) -> int:
        """Calls that were taken."""
        return sum(role.calls for role in self.roles.values())

    def add(self, row: Mapping[str, Any]) -> None:
        """Count one row."""
        of = self.roles.setdefault(row["role"], OfRole())
        prompt, text = sum(len(message["content"]) for message in row["messages"]), len(row["text"])
        of.calls += 1
        of.prompt_characters += prompt
        of.text_characters += text
        of.longest = max(of.longest, prompt + text)

    def document(self) -> dict[str, Any]:
        """The report as JSON: counts, and characters a call."""
        return {
            "questions": self.questions,
            "calls": self.calls,
            "rows": self.rows,
            "roles": {
                name: {
                    "calls": of.calls,
                    "prompt_characters": round(of.prompt_characters / of.calls),
                    "text_characters": round(of.text_characters / of.calls),
                    "longest": of.longest,
                }
                for name, of in sorted(self.roles.items())
            },
            "rejected": dict(self.rejected.most_common()),
        }


def read_calls(
    folders: Sequence[RunFolder], material: Material, selection: Selection, report: Report
) -> Iterator[dict[str, Any]]:
    """One row for each distinct call of the runs that may be learned from, in their order; the report counts all.

    Joined, a row holds as many calls of a question as go on from each other's replies, and the loss is that of all.
    Memory holds a shard, and sixteen bytes for each call. Raises UserError for a run of a test split, unless it is
    asked for, before the first row.
    """
    for folder in folders:
        _refuse_test(folder, material)
    held_out = read_held_out(material.held_out)
    seen: set[bytes] = set()
    for folder in folders:
        for trace in _traces(folder):
            report.questions += 1
            rows = []
            unfit = _unfit_question(trace, held_out, selection)
            for call in _calls(trace):
                report.calls += 1
                key = bytes.fromhex(call["key"])
                if reason := unfit or _unfit_call(call) or ("repeated" if key in seen else None):
                    report.rejected[reason] += 1
                    continue
                seen.add(key)
                rows.append(_row(trace, call, folder))
                report.add(rows[-1])
            written = _joined(rows) if selection.joined else rows
            report.rows += len(written)
            yield from written


def write_calls(rows: Iterable[Mapping[str, Any]], report: Report, output: Path) -> None:
    """Write the rows as JSON Lines, and beside them the report on them. Raises StorageError."""
    write_rows(rows, output)
    write_report(report.document(), output)


def tables(report: Report) -> list[Table]:
    """The report for people: the calls taken by role, and those that were not by reason."""
    taken = plain_table(f"{report.taken:,} of {report.calls:,} calls of {report.questions:,} questions")
    taken.add_column("role", overflow="fold")
    for name in ("calls", "characters of prompt", "of text", "longest of both"):
        taken.add_column(name, justify="right")
    for name, of in report.document()["roles"].items():
        taken.add_row(Text(name), *(f"{value:,}" for value in of.values()))
    rejected = plain_table("rejected")
    rejected.add_column("calls", justify="right")
    rejected.add_column("reason")
    for reason, count in report.rejected.most_common():
        rejected.add_row(f"{count:,}", Text(reason))
    return [taken, rejected] if report.rejected else [taken]


def _refuse_test(folder: RunFolder, material: Material) -> None:
    for shard in read_shards(folder, ("split",)):
        for split in shard["split"].unique().drop_nulls():
            material.refuse_test(split, given=f"the {split} split of {folder.path}", instead="name another run")


def _traces(folder: RunFolder) -> Iterator[dict[str, Any]]:
    return (trace for shard in read_shards(folder, _COLUMNS) for trace in shard.iter_rows(named=True))


def _calls(trace: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The model calls of a question: what is counted of each, and what is read."""
    pairs = zip(trace["steps"], trace["texts"], strict=True)
    return ({**step, **text} for step, text in pairs if step["kind"] == "llm")


def _unfit_question(trace: Mapping[str, Any], held_out: frozenset[str], selection: Selection) -> str | None:
    """Why nothing is learned from a question."""
    if is_held_out(trace["question_id"], trace["question"], held_out):
        return "the question is held out"
    if trace["status"] != "ok":
        return f"the question ended as {trace['status']}"
    if selection.right_only and trace["hits_at_1"] != 1:
        return "the question was not answered rightly"
    return None


def _unfit_call(call: Mapping[str, Any]) -> str | None:
    """Why nothing is learned from a call."""
    if call["completion"] is None or call["error"] is not None:
        return "the reply could not be read"
    if call["finish_reason"] == "length":
        return "the reply was cut short"
    if orjson.loads(call["sampling"])["choices"]:
        return "choices were weighed, and nothing was written"
    return None


def _row(trace: Mapping[str, Any], call: Mapping[str, Any], folder: RunFolder) -> dict[str, Any]:
    messages = list(_messages(folder, call["template"], call["inputs"]))
    begun = messages.pop().content if messages[-1].role == "assistant" else ""
    text = begun + call["completion"]
    return {
        "id": trace["question_id"],
        "dataset": trace["dataset"],
        "split": trace["split"],
        "role": call["role"],
        "messages": [message._asdict() for message in messages],
        "text": text,
        "loss": [[len(begun), len(text)]],
    }


def _joined(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a question, those that another goes on from taken into it."""
    kept: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: len(row["text"]), reverse=True):
        if longer := next((longer for longer in kept if _goes_on(longer, row)), None):
            longer["loss"] = sorted([*row["loss"], *longer["loss"]])
        else:
            kept.append(row)
    return [row for row in rows if any(row is other for other in kept)]


def _goes_on(longer: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether what a call was sent holds the whole of another one."""
    begun: str = longer["text"][: longer["loss"][-1][0]]
    return begun.startswith(row["text"]) and longer["messages"] == row["messages"]


def _messages(folder: RunFolder, template: str, inputs: str) -> tuple[Message, ...]:
    return _template(folder, template).render(orjson.loads(inputs))


_template = cache(RunFolder.read_template)
