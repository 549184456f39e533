"""What every job's command line shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from pipeline import config
from pipeline.analysis.reuse import explain_misses
from pipeline.engine.rejections import remarks
from pipeline.engine.summary import show
from pipeline.errors import UserError, nearest
from pipeline.evaluation.summary import PointSummary
from pipeline.text import printable
from pipeline.traces.folder import RunFolder

_REASONS = 3
"""How many reasons for calls that could not be reused are spelled out."""


def wants_help(argv: list[str]) -> bool:
    """Whether the words ask for help."""
    return bool({"-h", "--help"} & set(argv))


def help_text(usage: str, argv: list[str], *, name: str = "config") -> str:
    """A usage line, the groups with their choices, and every key with its default, under the overrides in `argv`."""
    return f"usage: {usage}\n\n{config.describe([word for word in argv if '=' in word], name=name)}"


def run_word(argv: list[str], usage: str, jobs: Mapping[str, Callable[[Mapping[str, Any]], None]]) -> int:
    """Run the job that the first word names with the configuration of that name, under the overrides that follow.

    `usage` begins with `kgqa COMMAND`, then the words with a bar between them; `conf/COMMAND_WORD.yaml` has the keys.
    Raises UserError for another word.
    """
    _, command, words = usage.split()[:3]
    if not argv or argv[0] in {"-h", "--help"}:
        helps = " and ".join(f"`kgqa {command} {word} --help`" for word in jobs)
        print(f"usage: {usage}\n\n{helps} list the keys of each.")
        return 0
    word, *overrides = argv
    if word not in jobs:
        raise UserError(f"kgqa {command} has no '{word}'.{nearest(word, jobs)} It is {' or '.join(jobs)}.")
    name = f"{command}_{word}"
    if wants_help(overrides):
        print(help_text(usage.replace(words, word), overrides, name=name))
        return 0
    jobs[word](config.compose(overrides, name=name))
    return 0


def report(folder: RunFolder, summaries: Sequence[PointSummary]) -> None:
    """Print the scores of a finished run, and what has to be known of them."""
    show(summaries, Console())
    remark(folder, summaries)


def remark(folder: RunFolder, summaries: Sequence[PointSummary]) -> None:
    """Print as the last lines how many questions failed, what could not be read, and which calls were not reused."""
    summary = folder.read_summary() or {}
    failed = sum(point.failed for point in summaries)
    again = [f"{failed} questions failed (column `error`): run.retry_failed=true runs them again"] if failed else []
    capped = sum(point.statuses.get("budget_exhausted", 0) for point in summaries)
    cut = [f"{capped:,} answers were cut short by a cap of budget (`status` budget_exhausted)"] if capped else []
    print_remarks(
        [*again, *cut, *remarks(summary["rejected"], folder.rejected), *_made_anew(folder, summary)], Console()
    )


def _made_anew(folder: RunFolder, summary: Mapping[str, Any]) -> list[str]:
    """Why a run that reuses others made calls, the commonest reasons first."""
    run = folder.read_run()
    earlier = run["points"][0]["config"]["run"]["reuse"] if run else []
    if not earlier or not summary["physical_llm_calls"]:
        return []
    reasons = explain_misses(folder, earlier).most_common()
    shown = "; ".join(f"{count:,} in {reason}" for reason, count in reasons[:_REASONS])
    more = f"; and {len(reasons) - _REASONS} more" if len(reasons) > _REASONS else ""
    return [f"run.reuse: {summary['physical_llm_calls']:,} calls were made anew. They differ {shown}{more}"]


def print_remarks(lines: Sequence[str], console: Console) -> None:
    """Print sentences as they are: a path is no markup, and is not cut."""
    for line in lines:
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
