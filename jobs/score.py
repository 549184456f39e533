"""`kgqa score`: every metric again from a run's traces, or of a file of anybody's predictions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from jobs.cli import guard
from jobs.common import help_text, print_remarks, report, wants_help
from pipeline import config
from pipeline.datasets.port import Dataset
from pipeline.engine.rejections import Rejections
from pipeline.engine.summary import rescore_run, show
from pipeline.errors import UserError
from pipeline.evaluation.peers import compare_rules
from pipeline.evaluation.predictions import read_predictions, score_predictions
from pipeline.evaluation.summary import PointSummary, aggregate, tally
from pipeline.evaluation.table import rules_table
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import place

USAGE = "kgqa score RUN [evaluation.key=value] … | predictions=FILE dataset=NAME [dataset.key=value] …"


def main(argv: list[str]) -> int:
    """Score a run folder (the first word without `=`) or a file of predictions."""
    if wants_help(argv) or not argv:
        print(help_text(USAGE, argv, name="score"))
        return 0
    if "=" not in argv[0]:
        folder = RunFolder(place(argv[0]))
        report(folder, _rescore(folder, argv[1:]))
        return 0
    composed = _compose(argv)
    if not composed["predictions"]:
        raise UserError(f"name a run folder or a file of predictions: {USAGE}")
    _score_predictions(composed, Console())
    return 0


def _compose(overrides: list[str]) -> dict[str, Any]:
    composed = config.compose(overrides, name="score")
    config.check(composed, ("dataset", "evaluation"))
    return composed


def _rescore(folder: RunFolder, overrides: list[str]) -> list[PointSummary]:
    """Score a run as it was scored when it ran, but for what the overrides say."""
    run = folder.read_run()
    if run is None:
        raise UserError(f"{folder.path} is not a run folder: it has no run.yaml")
    own = config.flatten({"evaluation": run["points"][0]["config"]["evaluation"]})
    composed = _compose([*(f"{key}={json.dumps(value)}" for key, value in own), *overrides])
    return rescore_run(folder, config.build("evaluation", composed))


def _score_predictions(composed: dict[str, Any], console: Console) -> None:
    file = Path(composed["predictions"])
    dataset: Dataset = config.build("dataset", composed)
    evaluation = config.build("evaluation", composed)
    with Rejections(file.with_name(f"{file.name}.rejected.jsonl"), strict=composed["dataset"]["strict"]) as rejections:
        predictions = read_predictions(file, rejections.add)
        examples = dataset.examples(rejections.add)
        scored = score_predictions(predictions, examples, method=composed["name"] or file.stem, settings=evaluation)
    show(aggregate(tally([scored.frame]), settings=evaluation), console)
    if composed["peers"]:
        console.print(rules_table(compare_rules(scored.lines)))
    print_remarks([*scored.remarks(), *rejections.remarks()], console)


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
