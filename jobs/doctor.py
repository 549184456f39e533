"""`kgqa doctor`: look at all that a run needs before it is started, and say how to mend what is wrong."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobs.cli import guard
from jobs.common import help_text, print_remarks, wants_help
from jobs.evaluate import points_of
from pipeline import config
from pipeline.engine.checkup.checks import examine
from pipeline.engine.checkup.finding import Finding
from pipeline.engine.run import Point
from pipeline.errors import UserError
from pipeline.evaluation.table import plain_table

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def main(argv: list[str]) -> int:
    """Check the configuration that `kgqa evaluate` would run with the same words. 1 when there is a problem."""
    if wants_help(argv):
        print(help_text("kgqa doctor [group=choice] [key=value] … | RUN/run.yaml", argv))
        return 0
    point, *others = points_of(argv)
    if others:
        raise UserError(f"{argv[0]} holds {len(others) + 1} points: give the words of one of them instead")
    config.check(point.config)
    logging.disable(logging.WARNING)  # what the components would warn of are findings
    try:
        findings = asyncio.run(_look(point, Console(stderr=True)))
    finally:
        logging.disable(logging.NOTSET)
    Console().print(_table(findings))
    print_remarks([_verdict(findings)], Console())
    return int(any(finding.level == "problem" for finding in findings))


async def _look(point: Point, console: Console) -> list[Finding]:
    findings: list[Finding] = []
    with console.status("looking around …") as status:
        async for subject, found in examine(point):
            status.update(f"looked at {subject} …")
            findings += found
    return findings


def _table(findings: Sequence[Finding]) -> Table:
    table = plain_table(None)
    table.add_column("level", no_wrap=True)
    table.add_column("checked", overflow="fold", max_width=26)
    table.add_column("found, and its mend", overflow="fold")
    for finding in findings:
        said = Text(finding.found)
        if finding.mend:
            said.append(f"\n→ {finding.mend}", "bold")
        table.add_row(Text(finding.level, _STYLES[finding.level]), Text(finding.subject), said)
    return table


def _verdict(findings: Sequence[Finding]) -> str:
    levels = Counter(finding.level for finding in findings)
    counts = [
        f"{levels[level]} {level}{'s' * (levels[level] > 1)}" for level in ("problem", "warning") if levels[level]
    ]
    return " and ".join(counts) if counts else "all is well"


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
