"""`kgqa collect parog`: make training plans for PARoG's planner from gold SPARQL, and report their types."""

from __future__ import annotations

from pipeline.cli.arguments import Arguments
from pipeline.cli.collect import Collected, collect
from pipeline.cli.output import Output
from pipeline.engine.rejections import remarks
from pipeline.errors import UserError
from pipeline.text import agreeing, counted
from pipeline.training.parog.samples import Report, tables, write_samples


def run(arguments: Arguments) -> Output:
    """Collect the training pairs, or continue, and write them with their report."""
    collected = collect(arguments)
    report = write_samples(collected.folder, collected.output, label=collected.summary.label)
    if not report.kept:
        reasons = ", ".join(f"{count:,}: {reason}" for reason, count in report.rejected.most_common(3))
        raise UserError(f"none of {counted(report.questions, 'question')} makes a training pair ({reasons})")
    figures = {**report.to_dict(), "output": str(collected.output)}
    return Output(figures, tables(report), notes=_notes(report, collected))


def _notes(report: Report, collected: Collected) -> list[str]:
    unchecked = report.kept.total() - report.executed
    notes = [
        f"{counted(report.executed, 'plan')} kept {agreeing('were', report.executed)} carried out and gave gold "
        f"answers alone; {report.complete:,} gave all of them",
        f"{counted(unchecked, 'plan')} kept {agreeing('were', unchecked)} not carried out (collect.execute_where)",
        f"{counted(report.kept.total(), 'pair')} in {collected.output}",
    ]
    if report.label:
        notes.insert(0, f"worded by llm={report.label}, which is not a language model")
    if report.split.lower().startswith("test"):
        split = f"made from the {report.split} split (material.allow_test_split)"
        notes.insert(0, f"{split}: do not evaluate a model on it that was trained on this data")
    return [*notes, *remarks(collected.rejected, collected.folder.rejected)]
