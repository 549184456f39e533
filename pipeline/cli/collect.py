"""`kgqa collect arg`, `collect parog` and `collect rog`: collect training data.

A collection is a run in which the collector takes the place of the method.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline import config
from pipeline.cli.arguments import Arguments, OutputKey
from pipeline.cli.output import Output
from pipeline.cli.run_output import exit_code, failure_notes
from pipeline.console import Console
from pipeline.engine.configuration import Configuration, run_dir
from pipeline.engine.rejections import remarks
from pipeline.engine.run import execute
from pipeline.errors import UserError
from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.text import agreeing, counted
from pipeline.traces.folder import RunFolder
from pipeline.training.arg import dataset as arg_texts
from pipeline.training.labelled import is_test
from pipeline.training.parog import samples as parog_pairs
from pipeline.training.rog import rows as rog_rows
from pipeline.training.rows import write_collected


def arg(arguments: Arguments) -> Output:
    """Collect training texts for ArG's generator (specification §7.2), or continue, and write them with a report."""
    collected = _collect(arguments)
    report = arg_texts.Report()
    write_collected(arg_texts.read_texts(collected.folder, report), report, collected.output)
    if not report.samples:
        raise _nothing_collected("text", report.questions, report.rejected)
    figures = {**report.document(), "output": str(collected.output)}
    notes = collected.notes("texts")
    return Output(figures, [arg_texts.report_table(report)], notes, exit_code=exit_code(collected.folder))


def parog(arguments: Arguments) -> Output:
    """Collect training plans for PARoG's planner from gold SPARQL, or continue, and write them with a report."""
    collected = _collect(arguments)
    report = parog_pairs.Report(label=collected.summary.simulated)
    write_collected(parog_pairs.read_pairs(collected.folder, report), report, collected.output)
    if not report.kept:
        reasons = ", ".join(f"{count:,}: {reason}" for reason, count in report.rejected.most_common(3))
        raise UserError(f"none of {counted(report.questions, 'question')} makes a training pair ({reasons})")
    figures = {**report.document(), "output": str(collected.output)}
    notes = _plan_notes(report, collected)
    return Output(figures, parog_pairs.tables(report), notes, exit_code=exit_code(collected.folder))


def rog(arguments: Arguments) -> Output:
    """Collect rows for RoG's planner and reader (specification §7.4), or continue, and write them with a report."""
    collected = _collect(arguments)
    collection = config.build("collect", arguments.compose())
    report = rog_rows.Report()
    write_collected(rog_rows.read_rows(collected.folder, collection, report), report, collected.output)
    if not report.rows:
        raise _nothing_collected("row", report.questions, report.rejected)
    figures = {**report.document(), "output": str(collected.output)}
    return Output(figures, [rog_rows.table(report)], collected.notes("rows"), exit_code=exit_code(collected.folder))


class _Collected(NamedTuple):
    """A finished collection."""

    folder: RunFolder
    summary: ConfigurationSummary
    output: Path
    """The file to write training data to."""
    rejected: int
    """Rows of the dataset that could not be read."""

    def notes(self, kind: str) -> list[str]:
        """Say which questions failed, which rows could not be read, and where the texts or rows (`kind`) are."""
        return [*self.failures(), f"{kind}: {self.output}"]

    def failures(self) -> list[str]:
        """Say which questions failed and which rows could not be read."""
        failed = failure_notes(self.folder, [self.summary], exits=True)
        return [*failed, *remarks(self.rejected, self.folder.rejected)]


def _collect(arguments: Arguments) -> _Collected:
    """Run or resume the collection that the overrides describe."""
    composed = arguments.compose()
    output = Path(config.build_own(OutputKey, composed).output)
    for section in ("material", "collect"):  # an error names the key under which the value was given
        config.build(section, composed)
    configuration = Configuration(tuple(arguments.overrides), _as_run(composed))
    (summary,) = execute([configuration], Console(stderr=True))
    folder = RunFolder(run_dir([configuration]))
    rejected = (folder.read_summary() or {})["rejected"]
    return _Collected(folder, summary, output, rejected)


def _as_run(composed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run with the collector in place of the method, over solved questions."""
    own = {name: composed[name] for name in config.SECTIONS}
    material = {**composed["material"], "strict": config.is_strict(composed)}
    choices = {**composed["choices"], "method": composed["collect"]["name"]}
    return {**own, "dataset": material, "method": composed["collect"], "choices": choices}


def _nothing_collected(kind: str, questions: int, rejected: Counter[str]) -> UserError:
    """Return the error of a collection without a single text or row (`kind`), with the reasons by their numbers."""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in rejected.most_common())
    return UserError(f"none of {counted(questions, 'question')} gave a training {kind} ({reasons})")


def _plan_notes(report: parog_pairs.Report, collected: _Collected) -> list[str]:
    unchecked = report.kept.total() - report.executed
    notes = [
        f"{counted(report.executed, 'plan')} kept {agreeing('were', report.executed)} carried out and gave gold "
        f"answers alone; {report.complete:,} gave all of them",
        f"{counted(unchecked, 'plan')} kept {agreeing('were', unchecked)} not carried out (collect.execute_where)",
        f"{counted(report.kept.total(), 'pair')} in {collected.output}",
    ]
    if report.label:
        notes.insert(0, f"worded by llm={report.label}, which is not a language model")
    if is_test(report.split):
        split = f"made from the {report.split} split (material.allow_test_split)"
        notes.insert(0, f"{split}: do not evaluate a model on it that was trained on this data")
    return [*notes, *collected.failures()]
