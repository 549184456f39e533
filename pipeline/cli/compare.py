"""`kgqa compare`: compare configurations of finished runs with one of them, question by question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ConfigDict, NonNegativeInt
from pydantic.dataclasses import dataclass
from rich.console import RenderableType

from pipeline import config
from pipeline.analysis.compare import Comparison, Correction, base_and_others, compare, read_flips
from pipeline.analysis.comparison_tables import comparison_table, cost_table, flip_tables, rerun_variance_lines
from pipeline.analysis.paired import Clusters, RunConfiguration, question_clusters, read_configurations, read_rows
from pipeline.analysis.rerun_variance import RerunVariance, measure_rerun_variance
from pipeline.cli.common import Arguments, Output
from pipeline.console import Console
from pipeline.engine.run import Configuration, execute
from pipeline.errors import UserError, nearest
from pipeline.evaluation.rescore import SCORES
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import storage_path


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Sample:
    """The `noise` section of the configuration."""

    questions: NonNegativeInt


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class RunAgain:
    """The `run` section of the configuration."""

    trust: bool


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Plan:
    """The keys of `conf/compare.yaml`."""

    base: str | int | None
    score: str
    correction: Correction
    cluster: str
    flips: NonNegativeInt
    noise: Sample
    run: RunAgain


def run(arguments: Arguments) -> Output:
    """Compare all configurations of the run folders with one of them."""
    plan: Plan = config.build_whole(arguments.compose())
    if plan.score not in SCORES:
        raise UserError(f"there is no score={plan.score}.{nearest(plan.score, SCORES)} Known: {', '.join(SCORES)}")
    configurations = read_configurations([storage_path(word) for word in arguments.words], plan.score)
    base, others = base_and_others(configurations, None if plan.base is None else str(plan.base))
    clusters = question_clusters(read_rows(base.folder, ["meta"])[base.number], plan.cluster)
    variance = _run_again(base, plan) if plan.noise.questions else None
    comparisons = compare(
        base, others, score=plan.score, correction=plan.correction, clusters=clusters, variance=variance
    )
    figures = {
        "score": plan.score,
        "dataset": base.dataset,
        "correction": plan.correction,
        "confidence": base.scoring.confidence,
        "cluster": clusters and clusters.field,
        "base": base.to_dict(),
        "points": [each.to_dict() for each in comparisons],
        "noise": variance and variance.to_dict(),
    }
    return Output(figures, _tables(plan, base, comparisons, clusters), _notes(plan, base, comparisons, variance))


def _run_again(base: RunConfiguration, plan: Plan) -> RerunVariance:
    """Run the base configuration again on the first questions, in a folder inside its own; resume what is there."""
    if not plan.run.trust:
        config.refuse_untrusted([base.config], base.folder.path / "run.yaml")
    run = base.config["run"]
    questions = min(plan.noise.questions, run["limit"] or plan.noise.questions)
    folder = RunFolder(base.folder.path.absolute() / "noise" / f"point-{base.number}-questions-{questions}")
    keys: dict[str, Any] = {"dir": str(folder.path), "limit": questions, "reuse": [], "retry_failed": False}
    again = config.complete({**base.config, "run": {**run, **keys}})
    config.check(again)
    configuration = Configuration((*base.overrides, f"run.limit={questions}"), again)
    if folder.read_run() is None:
        _write_run_yaml(folder, base, configuration)
    execute([configuration], Console(stderr=True))
    (second,) = read_configurations([folder.path], plan.score)
    return measure_rerun_variance(base, second, plan.score)


def _write_run_yaml(folder: RunFolder, base: RunConfiguration, configuration: Configuration) -> None:
    """Write a run.yaml with the model and graph of the base run, so that the new run refuses other ones."""
    folder.create()
    described = {"overrides": list(configuration.overrides), "config": dict(configuration.config)}
    saved = {name: value for name, value in (base.folder.read_run() or {}).items() if name != "id"}
    folder.write_run({**saved, "points": [described], "served": [dict(base.served)]})


def _tables(
    plan: Plan, base: RunConfiguration, comparisons: Sequence[Comparison], clusters: Clusters | None
) -> list[RenderableType]:
    tables = [
        comparison_table(base, comparisons, score=plan.score, correction=plan.correction, clusters=clusters),
        cost_table(comparisons),
        *flip_tables(base, comparisons, read_flips(base, comparisons, plan.flips)),
    ]
    return [part for table in tables for part in (table, "")]


def _notes(
    plan: Plan, base: RunConfiguration, comparisons: Sequence[Comparison], variance: RerunVariance | None
) -> list[str]:
    most = max(each.questions for each in comparisons)
    measured = rerun_variance_lines(base, variance, score=plan.score, questions=most) if variance else []
    folders = dict.fromkeys(each.folder for each in (base, *(one.configuration for one in comparisons)))
    unfinished = [folder.path for folder in folders if folder.read_summary() is None]
    return [*measured, *(f"{path} is not complete: only its answered questions are compared" for path in unfinished)]
