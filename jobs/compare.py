"""`kgqa compare`: points of finished runs against one of them, question by question."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from pydantic import ConfigDict, NonNegativeInt
from pydantic.dataclasses import dataclass
from rich.console import Console

from jobs.cli import guard
from jobs.common import help_text, print_remarks, wants_help
from pipeline import config
from pipeline.analysis.compare import Comparison, Correction, base_and_others, compare, read_flips
from pipeline.analysis.comparison_tables import comparison_table, cost_table, flip_tables, noise_lines
from pipeline.analysis.noise import Noise, measure_noise
from pipeline.analysis.pairs import RunPoint, Sources, read_points, read_run_points, sources_of
from pipeline.engine.run import Point, execute
from pipeline.errors import UserError, nearest
from pipeline.evaluation.rescore import SCORES
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import place

USAGE = "kgqa compare RUN [RUN …] [key=value …]"


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Sample:
    """The `noise` section of the configuration."""

    questions: NonNegativeInt


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Plan:
    """The keys of `conf/compare.yaml`."""

    base: str | int | None
    score: str
    correction: Correction
    cluster: str
    flips: NonNegativeInt
    noise: Sample
    json: bool


def main(argv: list[str]) -> int:
    """Compare all points of the run folders that `argv` names with one of them, and print or write the figures."""
    if wants_help(argv) or not argv:
        print(help_text(USAGE, argv, name="compare"))
        return 0
    plan: Plan = config.build_whole(config.compose([word for word in argv if "=" in word], name="compare"))
    if plan.score not in SCORES:
        raise UserError(f"there is no score={plan.score}.{nearest(plan.score, SCORES)} Known: {', '.join(SCORES)}")
    runs = [place(word) for word in argv if "=" not in word]
    if not runs:
        raise UserError(f"name the run folders to compare: {USAGE}")
    points = read_run_points(runs, plan.score)
    base, others = base_and_others(points, None if plan.base is None else str(plan.base))
    sources = sources_of(read_points(base.folder, ["meta"])[base.number], plan.cluster)
    noise = _run_again(base, plan) if plan.noise.questions else None
    comparisons = compare(base, others, score=plan.score, correction=plan.correction, sources=sources, noise=noise)
    if plan.json:
        print(json.dumps(_figures(plan, base, comparisons, sources, noise)))
    else:
        _print(plan, base, comparisons, sources, noise)
    return 0


def _run_again(base: RunPoint, plan: Plan) -> Noise:
    """Run the base's configuration over the first questions into a folder beside its own, or read what is there."""
    run = base.config["run"]
    questions = min(plan.noise.questions, run["limit"] or plan.noise.questions)
    folder = RunFolder(base.folder.path.absolute() / "noise" / f"point-{base.number}-questions-{questions}")
    keys: dict[str, Any] = {"dir": str(folder.path), "limit": questions, "reuse": [], "retry_failed": False}
    again = {**base.config, "run": {**run, **keys}}
    config.check(again)
    point = Point((*base.overrides, f"run.limit={questions}"), again)
    if folder.read_run() is None:
        _begin(folder, base, point)
    execute([point], Console(stderr=True))
    (second,) = read_run_points([folder.path], plan.score)
    return measure_noise(base, second, plan.score)


def _begin(folder: RunFolder, base: RunPoint, point: Point) -> None:
    """Write a run.yaml as though the base were to be resumed here: its run refuses another model or graph."""
    folder.create()
    described = {"overrides": list(point.overrides), "config": dict(point.config)}
    folder.write_run({**(base.folder.read_run() or {}), "points": [described], "served": [dict(base.served)]})


def _figures(
    plan: Plan, base: RunPoint, comparisons: Sequence[Comparison], sources: Sources | None, noise: Noise | None
) -> dict[str, Any]:
    return {
        "score": plan.score,
        "dataset": base.dataset,
        "correction": plan.correction,
        "confidence": base.evaluation.confidence,
        "cluster": sources and sources.field,
        "base": base.to_dict(),
        "points": [each.to_dict() for each in comparisons],
        "noise": noise and noise.to_dict(),
    }


def _print(
    plan: Plan, base: RunPoint, comparisons: Sequence[Comparison], sources: Sources | None, noise: Noise | None
) -> None:
    console = Console()
    tables = [
        comparison_table(base, comparisons, score=plan.score, correction=plan.correction, sources=sources),
        cost_table(comparisons),
        *flip_tables(base, comparisons, read_flips(base, comparisons, plan.flips)),
    ]
    for table in tables:
        console.print(table, "")
    if noise:
        most = max(each.questions for each in comparisons)
        print_remarks(noise_lines(base, noise, score=plan.score, questions=most), console)
    print_remarks(_unfinished([base, *(each.point for each in comparisons)]), console)


def _unfinished(points: Sequence[RunPoint]) -> list[str]:
    """What to know of runs that have not come to their end: a sentence for each."""
    folders = [folder for folder in dict.fromkeys(point.folder for point in points) if folder.read_summary() is None]
    return [f"{folder.path} is not complete: compared are the questions answered so far" for folder in folders]


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
