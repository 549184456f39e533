"""`kgqa doctor`: check everything that a run needs before it is started, and say how to fix what is wrong."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from pipeline.cli.arguments import Arguments
from pipeline.cli.evaluate import configurations_of
from pipeline.cli.output import Output
from pipeline.console import Console
from pipeline.engine.configuration import Configuration
from pipeline.engine.doctor.checks import examine
from pipeline.engine.doctor.finding import Finding, Level
from pipeline.errors import UserError
from pipeline.evaluation.score_tables import plain_table
from pipeline.text import counted

_COUNTED: tuple[Level, ...] = ("problem", "warning")
_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red", "stopped": "red"}


def run(arguments: Arguments) -> Output:
    """Check the configuration that `kgqa evaluate` would run with the same arguments. Exit code 1 for a problem."""
    first, *others = configurations_of(arguments)
    if others:
        raise UserError(
            f"{arguments.words[0]} holds {counted(len(others) + 1, 'configuration')}: give the overrides of one of them"
        )
    first.check()
    logging.disable(logging.WARNING)  # the findings say what components would warn of
    try:
        findings = asyncio.run(_examine(first, Console(stderr=True)))
    finally:
        logging.disable(logging.NOTSET)
    counts = Counter(finding.level for finding in findings)
    figures = {
        "counts": counts,
        "findings": [
            {"level": each.level, "subject": each.subject, "found": each.found, "fix": each.fix} for each in findings
        ],
    }
    return Output(figures, [_table(findings)], [_verdict(counts)], exit_code=int(counts["problem"] > 0))


async def _examine(configuration: Configuration, console: Console) -> list[Finding]:
    findings: list[Finding] = []
    with console.status("checking …") as status:
        async for subject, found in examine(configuration):
            status.update(f"checked {subject} …")
            findings += found
    return findings


def _table(findings: Sequence[Finding]) -> Table:
    table = plain_table(None)
    table.add_column("level", no_wrap=True)
    table.add_column("checked", overflow="fold", max_width=26)
    table.add_column("found, and how to fix it", overflow="fold")
    for finding in findings:
        text = Text(finding.found)
        if finding.fix:
            text.append(f"\n→ {finding.fix}", "bold")
        table.add_row(Text(finding.level, _STYLES[finding.level]), Text(finding.subject), text)
    return table


def _verdict(counts: Mapping[Level, int]) -> str:
    parts = [counted(counts[level], level) for level in _COUNTED if counts[level]]
    stopped = [f", which stopped {counted(counts['stopped'], 'other check')}"] if counts["stopped"] else []
    return "".join([" and ".join(parts) or "no problem found", *stopped])
