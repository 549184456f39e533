"""`kgqa collect parog`: PARoG's planning data from gold SPARQL, with a report beside the published shares."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from jobs.common import help_text, print_remarks, wants_help
from pipeline import config
from pipeline.engine.rejections import remarks
from pipeline.engine.run import Point, execute, run_dir
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.training.parog.samples import Report, tables, write_samples


def main(argv: list[str]) -> int:
    """Run the collection that `argv` describes, or go on with it; write the pairs and print the report."""
    if wants_help(argv):
        print(help_text("kgqa collect parog [group=choice] [key=value] …", argv, name="collect_parog"))
        return 0
    settings = config.compose(argv, name="collect_parog")
    _check(settings)
    points = [Point(tuple(argv), _as_run(settings))]
    (summary,) = execute(points, Console(stderr=True))
    folder = RunFolder(run_dir(points))
    report = write_samples(folder, label=summary.label)
    if not report.kept:
        reasons = ", ".join(f"{count:,}: {reason}" for reason, count in report.rejected.most_common(3))
        raise UserError(f"none of {report.questions:,} questions makes a training pair ({reasons})")
    _print(report, folder)
    return 0


def _check(settings: dict[str, Any]) -> None:
    """Raise UserError for wrong keys, and for questions that models are measured on."""
    config.build("collect", settings)
    config.check(settings, ("dataset",))
    allowed = settings["allow_test_split"]
    if not isinstance(allowed, bool):
        raise UserError(f"allow_test_split={allowed!r} is wrong: input should be true or false")
    split = config.build("dataset", settings).split
    if split != "train" and not allowed:
        raise UserError(
            f"the questions are of the split '{split}', which models are measured on: name dataset.split=train, "
            "or say allow_test_split=true if what is trained on them is never measured on them"
        )


def _as_run(settings: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a run whose questions come with their queries, and whose method makes pairs of them."""
    run = {section: settings[section] for section in (*config.SECTIONS, "choices")}
    dataset = settings["dataset"]
    queried = {"_target_": "pipeline.training.parog.questions.Queried", "dataset": dataset, "strict": dataset["strict"]}
    method = {"name": "parog-data", **settings["collect"]}
    choices = {**settings["choices"], "method": "parog-data"}
    return {**run, "dataset": queried, "method": method, "choices": choices}


def _print(report: Report, folder: RunFolder) -> None:
    console = Console()
    for table in tables(report):
        console.print(table)
    unchecked = report.kept.total() - report.executed
    lines = [
        f"{report.executed:,} plans kept were carried out and gave gold answers alone, {report.complete:,} of them all",
        f"{unchecked:,} plans kept were not carried out (collect.execute_where)",
        f"{report.kept.total():,} pairs in {folder.path / 'samples.jsonl'}",
    ]
    if report.label:
        lines.insert(0, f"worded by llm={report.label}: no language model has had a say")
    if report.split != "train":
        lines.insert(0, f"from the {report.split} split (allow_test_split): measure nothing there that learned from it")
    saved = folder.read_summary() or {}
    print_remarks([*lines, *remarks(saved["rejected"], folder.rejected)], console)
