"""`kgqa score`: every metric again from a run's traces, or of a file of anybody's predictions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from jobs.cli import guard
from jobs.common import help_text, wants_help
from pipeline import config
from pipeline.datasets.port import Dataset
from pipeline.engine.rejections import Rejections
from pipeline.engine.summary import rescore_run, show
from pipeline.errors import UserError
from pipeline.evaluation.peers import compare_rules
from pipeline.evaluation.predictions import read_predictions, score_predictions
from pipeline.evaluation.summary import aggregate
from pipeline.evaluation.table import rules_table
from pipeline.traces.folder import RunFolder

USAGE = "kgqa score RUN [evaluation.key=value] … | predictions=FILE dataset=NAME [dataset.key=value] …"


def main(argv: list[str]) -> int:
    """Score a run folder (the first word without `=`) or a file of predictions."""
    if wants_help(argv) or not argv:
        print(help_text(USAGE, "score"))
        return 0
    if "=" not in argv[0]:
        show(rescore_run(RunFolder(Path(argv[0])), config.build("evaluation", _compose(argv[1:]))), Console())
        return 0
    composed = _compose(argv)
    if not composed["predictions"]:
        raise UserError(f"name a run folder or a file of predictions: {USAGE}")
    _score_predictions(composed, Console())
    return 0


def _compose(overrides: list[str]) -> dict[str, Any]:
    return config.compose(overrides, name="score")


def _score_predictions(composed: dict[str, Any], console: Console) -> None:
    file = Path(composed["predictions"])
    dataset: Dataset = config.build("dataset", composed)
    evaluation = config.build("evaluation", composed)
    with Rejections(file.with_name("rejected.jsonl"), strict=composed["dataset"]["strict"]) as rejections:
        predictions = read_predictions(file, rejections.add)
        examples = dataset.examples(rejections.add)
        scored = score_predictions(predictions, examples, method=composed["name"] or file.stem, settings=evaluation)
    show(aggregate(scored.frame, settings=evaluation), console)
    if composed["peers"]:
        console.print(rules_table(compare_rules(scored.lines)))
    for remark in [*scored.remarks(), *rejections.remarks()]:
        console.print(remark, highlight=False, markup=False)


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
