"""`kgqa collect arg`: collect training texts for ArG's generator (specification §7.2)."""

from __future__ import annotations

from pipeline.cli.arguments import Arguments
from pipeline.cli.collect import collect, nothing_collected
from pipeline.cli.output import Output
from pipeline.training.arg.dataset import report_table, write_texts


def run(arguments: Arguments) -> Output:
    """Collect the training texts, or continue, and write them with their report."""
    collected = collect(arguments)
    report = write_texts(collected.folder, collected.output)
    if not report.samples:
        raise nothing_collected("text", report.questions, report.rejected)
    figures = {**report.document(), "output": str(collected.output)}
    return Output(figures, [report_table(report)], collected.notes("texts"))
