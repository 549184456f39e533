"""`kgqa collect parog`: PARoG's planning data from gold SPARQL, with a report beside the published shares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
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
    for section in ("material", "collect"):  # a wrong value is told by the key that it was given under
        config.build(section, settings)
    points = [Point(tuple(argv), _as_run(settings))]
    (summary,) = execute(points, Console(stderr=True))
    folder = RunFolder(run_dir(points))
    output = Path(settings["output"])
    report = write_samples(folder, output, label=summary.label)
    if not report.kept:
        reasons = ", ".join(f"{count:,}: {reason}" for reason, count in report.rejected.most_common(3))
        raise UserError(f"none of {report.questions:,} questions makes a training pair ({reasons})")
    _print(report, folder, output)
    return 0


def _as_run(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run whose method is the collection, over solved questions."""
    own = {name: settings[name] for name in config.SECTIONS}
    material = {**settings["material"], "strict": settings["dataset"]["strict"]}
    choices = {**settings["choices"], "method": settings["collect"]["name"]}
    return {**own, "dataset": material, "method": settings["collect"], "choices": choices}


def _print(report: Report, folder: RunFolder, output: Path) -> None:
    console = Console()
    for table in tables(report):
        console.print(table)
    unchecked = report.kept.total() - report.executed
    lines = [
        f"{report.executed:,} plans kept were carried out and gave gold answers alone, {report.complete:,} of them all",
        f"{unchecked:,} plans kept were not carried out (collect.execute_where)",
        f"{report.kept.total():,} pairs in {output}",
    ]
    if report.label:
        lines.insert(0, f"worded by llm={report.label}: no language model has had a say")
    if report.split.lower().startswith("test"):
        lines.insert(
            0, f"from the {report.split} split (material.test_split): measure nothing there that learned from it"
        )
    saved = folder.read_summary() or {}
    print_remarks([*lines, *remarks(saved["rejected"], folder.rejected)], console)
