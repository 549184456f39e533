"""`kgqa collect rog`: collect training rows for RoG's planner and reader (specification §7.4)."""

from __future__ import annotations

from pipeline import config
from pipeline.cli.collect import collect
from pipeline.cli.common import Arguments, Output
from pipeline.engine.rejections import remarks
from pipeline.errors import UserError
from pipeline.text import counted
from pipeline.training.rog.rows import table, write_training_rows


def run(arguments: Arguments) -> Output:
    """Collect the rows, or continue, and write them with their report."""
    folder, summary, output, rejected = collect(arguments)
    report = write_training_rows(folder, config.build("collect", arguments.compose()), output)
    if not report.rows:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.rejected.most_common())
        raise UserError(f"none of {counted(report.questions, 'question')} gave a training row ({reasons})")
    failed = (
        [f"{counted(summary.failed, 'question')} failed: run.retry_failed=true runs them again"]
        if summary.failed
        else []
    )
    return Output(
        {**report.document(), "output": str(output)},
        [table(report)],
        notes=[*failed, *remarks(rejected, folder.rejected), f"rows: {output}"],
    )
