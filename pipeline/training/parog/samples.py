"""Makes the training pairs of a finished collection, and the report on them (specification §7.3, steps 6 and 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from rich.table import Table

from pipeline.methods.parog.planning import MakePlan
from pipeline.text import counted
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.training.parog.decompose import PLAN_TYPES
from pipeline.training.rows import decisions
from pipeline.types import Question

PUBLISHED: Mapping[str, float] = {
    "conjunction": 0.3578,
    "composition": 0.2968,
    "linear": 0.2522,
    "superlative": 0.0483,
    "comparative": 0.0449,
}
"""The shares among the 74,802 samples of the paper, from the training splits of WebQSP, CWQ and GrailQA."""

_COLUMNS = ("question_id", "dataset", "split", "error", "answers", "precision", "recall", "steps", "texts")


@dataclass(slots=True)
class Report:
    """The counts of a collection."""

    dataset: str = ""
    split: str = ""
    label: str | None = None
    """The name of the simulated model that wrote the plans; None for a language model."""
    questions: int = 0
    decomposed: Counter[str] = field(default_factory=Counter)
    """Type → queries that were decomposed."""
    kept: Counter[str] = field(default_factory=Counter)
    """Type → training pairs."""
    executed: int = 0
    """Training pairs whose plan was executed: it found gold answers and nothing else."""
    complete: int = 0
    """Executed plans that found all gold answers: a graph may lack some."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Reason → questions."""

    def document(self) -> dict[str, Any]:
        """Return the contents of `.report.json`."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**own, "shares": _shares(self.kept), "published_shares": dict(PUBLISHED)}


def tables(report: Report) -> list[Table]:
    """Return a table of the types with their published shares, and one of the reasons for rejection."""
    questions = counted(report.questions, "question")
    title = f"{report.dataset}, {report.split} split: {report.kept.total():,} of {questions} kept"
    types = Table(title=title, title_justify="left")
    for column in ("type", "decomposed", "share", "kept", "share ", "published"):
        types.add_column(column, justify="left" if column == "type" else "right")
    decomposed, kept = _shares(report.decomposed), _shares(report.kept)
    for kind in PLAN_TYPES:
        counts = f"{report.decomposed[kind]:,}", f"{report.kept[kind]:,}"
        types.add_row(
            kind, counts[0], _percent(decomposed[kind]), counts[1], _percent(kept[kind]), _percent(PUBLISHED[kind])
        )
    reasons = Table(title="rejected", title_justify="left")
    reasons.add_column("questions", justify="right")
    reasons.add_column("reason")
    for reason, count in report.rejected.most_common():
        reasons.add_row(f"{count:,}", reason)
    return [types, reasons] if report.rejected else [types]


def read_pairs(folder: RunFolder, report: Report) -> Iterator[dict[str, Any]]:
    """Yield the pairs in a collection's traces that passed every check, and count all questions in `report`."""
    for shard in read_shards(folder, _COLUMNS):
        for row in shard.iter_rows(named=True):
            report.dataset, report.split = row["dataset"], row["split"]
            report.questions += 1
            events = dict(decisions(row, "decomposed", "sample", "rejected"))
            if kind := events.get("decomposed", {}).get("type"):
                report.decomposed[kind] += 1
            if reason := _reason(row, events):
                report.rejected[reason] += 1
                continue
            sample = events["sample"]
            report.kept[kind] += 1
            report.executed += sample["executed"]
            report.complete += sample["executed"] and row["recall"] == 1
            yield _pair(row, kind, sample)


def _reason(row: Mapping[str, Any], events: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the reason why a question makes no pair; None if it makes one."""
    if row["error"]:
        return f"failed: {row['error'].partition(':')[0]}"
    if "rejected" in events:
        return str(events["rejected"]["reason"])
    if "sample" not in events:
        return "stopped by a limit of the budget"
    return _execution_failure(row) if events["sample"]["executed"] else None


def _execution_failure(row: Mapping[str, Any]) -> str | None:
    """Return the reason why an executed plan is wrong; None if it finds gold answers and nothing else."""
    if not row["answers"]:
        return "its plan finds nothing in this graph"
    if row["precision"] == 1:
        return None
    return "its plan finds more than gold answers" if row["precision"] else "its plan finds no gold answer"


def _pair(row: Mapping[str, Any], kind: str, sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chat of a pair: the prompt of a trained planner, then the plan."""
    question = Question(row["question_id"], row["dataset"], row["split"], sample["question"])
    asked = MakePlan(question, is_trained=True, max_subgoals=1)  # a trained planner is not told the maximum
    prompt = [message._asdict() for message in asked.messages()]
    return {
        "id": row["question_id"],
        "dataset": row["dataset"],
        "split": row["split"],
        "type": kind,
        "executed": sample["executed"],
        "messages": [*prompt, {"role": "assistant", "content": sample["plan"]}],
    }


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    return {kind: counts.get(kind, 0) / total if total else 0.0 for kind in PLAN_TYPES}


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
