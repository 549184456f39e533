"""`kgqa collect rog`: collect training rows for RoG's planner and reader (specification §7.4)."""

from __future__ import annotations

from pipeline import config
from pipeline.cli.arguments import Arguments
from pipeline.cli.collect import collect, nothing_collected
from pipeline.cli.output import Output
from pipeline.training.rog.rows import table, write_training_rows


def run(arguments: Arguments) -> Output:
    """Collect the rows, or continue, and write them with their report."""
    collected = collect(arguments)
    collection = config.build("collect", arguments.compose())
    report = write_training_rows(collected.folder, collection, collected.output)
    if not report.rows:
        raise nothing_collected("row", report.questions, report.rejected)
    figures = {**report.document(), "output": str(collected.output)}
    return Output(figures, [table(report)], collected.notes("rows"))
