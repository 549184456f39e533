"""`kgqa collect arg`: collect training texts for ArG's generator (specification §7.2)."""

from __future__ import annotations

from pipeline.cli.collect import collect
from pipeline.cli.common import Arguments, Output
from pipeline.engine.rejections import remarks
from pipeline.errors import UserError
from pipeline.text import counted
from pipeline.training.arg.dataset import report_table, write_texts


def run(arguments: Arguments) -> Output:
    """Collect the training texts, or continue, and write them with their report."""
    folder, summary, output, rejected = collect(arguments)
    report = write_texts(folder, output)
    if not report.samples:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.rejected.most_common())
        raise UserError(f"none of {counted(report.questions, 'question')} gave a training text ({reasons})")
    failed = (
        [f"{counted(summary.failed, 'question')} failed: run.retry_failed=true runs them again"]
        if summary.failed
        else []
    )
    return Output(
        {**report.document(), "output": str(output)},
        [report_table(report)],
        notes=[*failed, *remarks(rejected, folder.rejected), f"texts: {output}"],
    )
