"""Extracts fine-tuning data from the traces of runs: the prompts of a model and its replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import orjson
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass
from rich.table import Table
from rich.text import Text

from pipeline.evaluation.score_tables import plain_table
from pipeline.llm.prompt import Message
from pipeline.text import counted
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.training.labelled import TrainingSource, is_held_out, read_held_out

_COLUMNS = ("question_id", "dataset", "split", "question", "status", "hits_at_1", "steps", "texts")


@checked_dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Selection:
    """The selection of calls. `conf/collect_calls.yaml` documents the keys."""

    correct_only: bool
    merge_continuations: bool


@dataclass
class RoleCounts:
    """Counts of the selected calls of one role."""

    calls: int = 0
    prompt_characters: int = 0
    text_characters: int = 0
    longest: int = 0
    """Characters of the longest prompt with its text."""


@dataclass
class Report:
    """Counts of the selected and the rejected calls."""

    questions: int = 0
    """Rows of the traces: a question counts once for each configuration that asked it."""
    calls: int = 0
    roles: dict[str, RoleCounts] = field(default_factory=dict)
    """Role → the selected calls."""
    rows: int = 0
    """Rows written; fewer than calls if continuations are merged."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Reason → number of rejected calls."""

    @property
    def selected(self) -> int:
        """The number of selected calls."""
        return sum(role.calls for role in self.roles.values())

    def add(self, row: Mapping[str, Any]) -> None:
        """Count one selected call."""
        counts = self.roles.setdefault(row["role"], RoleCounts())
        prompt, text = sum(len(message["content"]) for message in row["messages"]), len(row["text"])
        counts.calls += 1
        counts.prompt_characters += prompt
        counts.text_characters += text
        counts.longest = max(counts.longest, prompt + text)

    def document(self) -> dict[str, Any]:
        """Return the report as JSON: counts, and mean characters per call."""
        return {
            "questions": self.questions,
            "calls": self.calls,
            "rows": self.rows,
            "roles": {
                name: {
                    "calls": counts.calls,
                    "prompt_characters": round(counts.prompt_characters / counts.calls),
                    "text_characters": round(counts.text_characters / counts.calls),
                    "longest": counts.longest,
                }
                for name, counts in sorted(self.roles.items())
            },
            "rejected": dict(self.rejected.most_common()),
        }


def read_calls(
    folders: Sequence[RunFolder], source: TrainingSource, selection: Selection, report: Report
) -> Iterator[dict[str, Any]]:
    """Yield one row for each distinct selected call of the runs, in their order; the report counts all calls.

    With `merge_continuations` calls of a question that continue each other's replies are one row, with the loss of all.
    Memory holds one shard and sixteen bytes per call. Raises UserError for a run of a test split before the first row,
    unless that is allowed.
    """
    for folder in folders:
        _refuse_test(folder, source)
    held_out = read_held_out(source.held_out)
    seen: set[bytes] = set()
    for folder in folders:
        for trace in _traces(folder):
            report.questions += 1
            rows = []
            question_reason = _rejection_of_question(trace, held_out, selection)
            for call in _calls(trace):
                report.calls += 1
                key = bytes.fromhex(call["key"])
                if reason := question_reason or _rejection_of_call(call) or ("repeated" if key in seen else None):
                    report.rejected[reason] += 1
                    continue
                seen.add(key)
                rows.append(_row(trace, call, folder))
                report.add(rows[-1])
            written = _merge_continuations(rows) if selection.merge_continuations else rows
            report.rows += len(written)
            yield from written


def call_row(source: tuple[str, str, str], role: str, messages: Sequence[Message], completion: str) -> dict[str, Any]:
    """Return the row of one call; `source` is the id, the dataset and the split of its question."""
    turns = [message._asdict() for message in messages]
    prefix = turns.pop()["content"] if turns[-1]["role"] == "assistant" else ""
    text = prefix + completion
    return {
        **dict(zip(("id", "dataset", "split"), source, strict=True)),
        "role": role,
        "messages": turns,
        "text": text,
        "loss": [[len(prefix), len(text)]],
    }


def tables(report: Report) -> list[Table]:
    """Return the report as tables: selected calls by role, rejected calls by reason."""
    selected = plain_table(
        f"{report.selected:,} of {counted(report.calls, 'call')} of {counted(report.questions, 'question')}, "
        "counted in each configuration"
    )
    selected.add_column("role", overflow="fold")
    for name in ("calls", "prompt characters", "text characters", "longest"):
        selected.add_column(name, justify="right")
    for name, counts in report.document()["roles"].items():
        selected.add_row(Text(name), *(f"{value:,}" for value in counts.values()))
    rejected = plain_table("rejected")
    rejected.add_column("calls", justify="right")
    rejected.add_column("reason")
    for reason, count in report.rejected.most_common():
        rejected.add_row(f"{count:,}", Text(reason))
    return [selected, rejected] if report.rejected else [selected]


def _refuse_test(folder: RunFolder, source: TrainingSource) -> None:
    for shard in read_shards(folder, ("split",)):
        for split in shard["split"].unique().drop_nulls():
            source.refuse_test(split, given=f"the {split} split of {folder.path}", fix="name another run")


def _traces(folder: RunFolder) -> Iterator[dict[str, Any]]:
    return (trace for shard in read_shards(folder, _COLUMNS) for trace in shard.iter_rows(named=True))


def _calls(trace: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the model calls of a question, each with its step and its text fields."""
    pairs = zip(trace["steps"], trace["texts"], strict=True)
    return ({**step, **text} for step, text in pairs if step["kind"] == "llm")


def _rejection_of_question(trace: Mapping[str, Any], held_out: frozenset[str], selection: Selection) -> str | None:
    """Return why the calls of a question are rejected, or None."""
    if is_held_out(trace["question_id"], trace["question"], held_out):
        return "the question is held out"
    if trace["status"] != "ok":
        return f"the question ended as {trace['status']}"
    if selection.correct_only and trace["hits_at_1"] != 1:
        return "the question was not answered correctly"
    return None


def _rejection_of_call(call: Mapping[str, Any]) -> str | None:
    """Return why a call is rejected, or None."""
    if call["completion"] is None or call["error"] is not None:
        return "the reply could not be read"
    if call["finish_reason"] == "length":
        return "the reply was truncated"
    if orjson.loads(call["sampling"])["choices"]:
        return "the call scored choices and wrote no text"
    return None


def _row(trace: Mapping[str, Any], call: Mapping[str, Any], folder: RunFolder) -> dict[str, Any]:
    messages = _template(folder, call["template"]).render(orjson.loads(call["inputs"]))
    source = (trace["question_id"], trace["dataset"], trace["split"])
    return call_row(source, call["role"], messages, call["completion"])


def _merge_continuations(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge each row of a question into a longer one that continues it."""
    kept: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: len(row["text"]), reverse=True):
        if longer := next((longer for longer in kept if _continues(longer, row)), None):
            longer["loss"] = sorted([*row["loss"], *longer["loss"]])
        else:
            kept.append(row)
    return [row for row in rows if any(row is other for other in kept)]


def _continues(longer: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether the prompt of `longer` contains the whole text of `row`."""
    prefix: str = longer["text"][: longer["loss"][-1][0]]
    return prefix.startswith(row["text"]) and longer["messages"] == row["messages"]


_template = cache(RunFolder.read_template)
