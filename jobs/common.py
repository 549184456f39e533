"""What every job's command line shares."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from pipeline import config
from pipeline.engine.rejections import remarks
from pipeline.engine.summary import show
from pipeline.evaluation.summary import PointSummary
from pipeline.traces.folder import RunFolder


def wants_help(argv: list[str]) -> bool:
    """Whether the words ask for help."""
    return bool({"-h", "--help"} & set(argv))


def help_text(usage: str, argv: list[str], *, name: str = "config") -> str:
    """A usage line, the groups with their choices, and every key with its default, under the overrides in `argv`."""
    return f"usage: {usage}\n\n{config.describe([word for word in argv if '=' in word], name=name)}"


def report(folder: RunFolder, summaries: Sequence[PointSummary]) -> None:
    """Print the scores of a finished run, and what has to be known of them."""
    show(summaries, Console())
    remark(folder, summaries)


def remark(folder: RunFolder, summaries: Sequence[PointSummary]) -> None:
    """Print as the last lines how many questions of a run failed, and how many input rows it lacks."""
    summary = folder.read_summary() or {}
    failed = sum(point.failed for point in summaries)
    again = [f"{failed} questions failed (column `error`): run.retry_failed=true runs them again"] if failed else []
    print_remarks([*again, *remarks(summary["rejected"], folder.rejected)], Console())


def print_remarks(lines: Sequence[str], console: Console) -> None:
    """Print sentences as they are: a path is no markup, and is not cut."""
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
