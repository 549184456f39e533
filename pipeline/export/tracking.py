"""What a service that tracks experiments is told of a configuration; each client stores it in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.config import canonical
from pipeline.export.exported_run import ExportedConfiguration

_LONGEST_VALUE = 500
"""Of a parameter, in characters: what the services take."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A configuration as runs are tracked."""

    id: str
    """The same in each export, so that a second one can find it."""
    name: str
    parameters: Mapping[str, str]
    """The keys that decide the answers."""
    metrics: Mapping[str, float]
    """The scores with their intervals, and the costs per question."""
    tags: Mapping[str, str]
    """Method, dataset, model, graph, and the tags of the run."""
    started_ms: int
    """When the run began, in milliseconds since 1970."""


def tracked_run(exported: ExportedConfiguration) -> TrackedRun:
    """Return what is tracked of a configuration."""
    summary, served = exported.summary, exported.served
    answered = max(1, summary.answered)
    costs = {f"per_question.{name}": total / answered for name, total in summary.counters.items() if total is not None}
    counts = {"questions": summary.questions, "failed": summary.failed, "not_run": summary.not_run}
    about = {"method": summary.method, "dataset": summary.dataset, "model": served["model"], "graph": served["graph"]}
    about |= {"label": summary.label, "note": exported.metadata.get("note"), "folder": str(exported.folder.path)}
    about |= {"tags": ",".join(map(str, exported.metadata.get("tags") or ())) or None}
    return TrackedRun(
        id=f"{exported.run_id}-{exported.number}",
        name=exported.name,
        parameters={name: _text(value) for name, value in exported.parameters.items()},
        metrics={name: float(value) for name, value in {**exported.scores, **costs, **counts}.items()},
        tags={name: _text(value) for name, value in about.items() if value is not None},
        started_ms=int(exported.started.timestamp() * 1000),
    )


def _text(value: object) -> str:
    return (value if isinstance(value, str) else canonical(value))[:_LONGEST_VALUE]
