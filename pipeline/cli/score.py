"""`kgqa score`: recompute every metric from a run's traces, or score a file of predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from pipeline import config
from pipeline.analysis.score_notes import alias_notes, unread_batches
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.cli.run_output import hits_over_seeds, result_notes, run_figures, score_tables
from pipeline.datasets.interface import Dataset
from pipeline.engine.rejections import Rejections
from pipeline.engine.run_summary import rescore_run
from pipeline.errors import UserError
from pipeline.evaluation.configuration_summary import ConfigurationSummary, aggregate, group_equal_rows
from pipeline.evaluation.predictions import MissingPredictions, read_predictions, score_predictions
from pipeline.evaluation.score_file import full_score_tables
from pipeline.papers.paper_rules import compare_rules, rules_table
from pipeline.papers.published_results import read_published_line
from pipeline.text import kgqa
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import storage_path


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The keys of `conf/score.yaml` that only a file of predictions has a use for."""

    predictions: str | None
    name: str | None
    missing: MissingPredictions
    peers: bool


def run(arguments: Arguments) -> Output:
    """Score a run folder or a file of predictions."""
    if arguments.words:
        if len(arguments.words) > 1:
            raise UserError(f"{' and '.join(arguments.words)}: name one run folder")
        if given := [word for word in arguments.overrides if config.key_of(word) in Plan.__dataclass_fields__]:
            raise UserError(f"{given[0]} is about a file of predictions: give a run or predictions=FILE, not both")
        if Path(arguments.words[0]).is_file():
            file = arguments.words[0]
            command = kgqa("score", config.override("predictions", file))
            raise UserError(f"{file} is a file: {command} scores a file of predictions")
        folder = RunFolder(storage_path(arguments.words[0]))
        return _score_run(folder, arguments.overrides)
    if selecting := [word for word in arguments.overrides if config.key_of(word).startswith("run.")]:
        raise UserError(
            f"{selecting[0]} is a key of runs: missing=left_out scores only the questions that have a prediction"
        )
    composed = _compose(arguments.overrides)
    plan = config.build_own(Plan, composed)
    if not plan.predictions:
        raise UserError("name a run folder or a file of predictions: kgqa score RUN, or kgqa score predictions=FILE")
    return _score_predictions(Path(plan.predictions), plan, composed)


def _compose(overrides: Sequence[str]) -> dict[str, Any]:
    composed = config.compose(overrides, name="score")
    config.check(composed, ("dataset", "evaluation"))
    return composed


def rescore(folder: RunFolder, overrides: Sequence[str]) -> tuple[list[ConfigurationSummary], list[str]]:
    """Score a run with the evaluation that it had, changed by the overrides. Returns the keys that they change, too.

    If they change a key, nothing is written: all commands print the scores by the keys of the run. Raises UserError for
    keys of a dataset.
    """
    if of_dataset := [word for word in overrides if config.key_of(word).partition(".")[0] == "dataset"]:
        raise UserError(
            f"{of_dataset[0]} changes nothing here: a run has its questions and gold answers in its traces. If the "
            "gold answers of the dataset have changed, the command of the run scores it again"
        )
    saved = folder.require_run()["points"][0]["config"]["evaluation"]
    changed = {"evaluation._target_", *(word.partition("=")[0].lstrip("+") for word in overrides)}
    kept = {key: value for key, value in saved.items() if f"evaluation.{key}" not in changed}
    given = _compose(overrides)["evaluation"]
    defaults = _compose(())["evaluation"] if overrides else given
    own, evaluation = {**defaults, **saved, "_target_": defaults["_target_"]}, {**given, **kept}
    other = [f"evaluation.{key}={value}" for key, value in evaluation.items() if value != own.get(key)]
    scoring = config.build("evaluation", {"evaluation": evaluation})
    return rescore_run(folder, scoring, writes=not other), other


def _score_run(folder: RunFolder, overrides: Sequence[str]) -> Output:
    summaries, other = rescore(folder, overrides)
    figures, notes = run_figures(folder, summaries), result_notes(folder, summaries)
    figures |= {"points": [summary.to_dict() for summary in summaries], "complete": figures.get("complete", False)}
    seeds = hits_over_seeds([folder], [summaries])
    figures |= {"seeds": seeds.to_list()} if len(summaries) > 1 else {}
    notes += [*seeds.lines(), *unread_batches([folder])]
    if other:
        notes.append(f"scored by {' '.join(other)} here only: the run keeps the scores by its own keys")
    tables = score_tables(summaries)
    return Output(figures, tables, notes, full_tables=[*full_score_tables(tables, summaries), *seeds.tables()])


def _score_predictions(file: Path, plan: Plan, composed: Mapping[str, Any]) -> Output:
    dataset: Dataset = config.build("dataset", composed)
    evaluation = config.build("evaluation", composed)
    rejected = Path.cwd() / f"{file.name}.rejected.jsonl"  # the folder of other people's files may be read-only
    with Rejections(rejected, strict=config.is_strict(composed)) as rejections:
        predictions = read_predictions(file, rejections.add, read_published_line)
        examples = dataset.examples(rejections.add)
        name = plan.name or file.stem
        scored = score_predictions(predictions, examples, method=name, scoring=evaluation, missing=plan.missing)
    summaries = aggregate(group_equal_rows([scored.frame]), scoring=evaluation)
    means = compare_rules(scored.lines) if plan.peers else []
    rules = [
        {"system": each.rule.system, "metric": each.rule.metric, "mean": each.mean, "counted": each.questions}
        for each in means
    ]
    figures = {"points": [summary.to_dict() for summary in summaries], "rules": rules, "rejected": rejections.count}
    tables = [*score_tables(summaries), *([rules_table(means)] if means else [])]
    notes = [*scored.remarks(), *rejections.remarks(), *alias_notes([composed["dataset"]])]
    return Output(figures, tables, notes, full_tables=full_score_tables(tables, summaries))
