"""`kgqa collect arg`: what ArG's generator learns from (methods.md §7.2)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from jobs.cli import guard
from jobs.common import help_text, print_remarks, wants_help
from pipeline import config
from pipeline.engine.rejections import remarks
from pipeline.engine.run import Point, execute, run_dir
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.training.arg.dataset import report_table, write_texts

_NAME = "collect_arg"


def main(argv: list[str]) -> int:
    """Collect, or go on collecting, what Hydra overrides `argv` describe; write the texts and the report on them."""
    if wants_help(argv):
        print(help_text("kgqa collect arg [group=choice] [key=value] …", argv, name=_NAME))
        return 0
    settings = config.compose(argv, name=_NAME)
    for section in ("material", "collect"):  # a wrong value is told by the key that it was given under
        config.build(section, settings)
    point = Point(tuple(argv), _as_run(settings))
    (summary,) = execute([point], Console(stderr=True))
    folder, output = RunFolder(run_dir([point])), Path(settings["output"])
    report = write_texts(folder, output)
    if not report.samples:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.rejected.most_common())
        raise UserError(f"none of {report.questions:,} questions gave a training text ({reasons})")
    console = Console()
    console.print(report_table(report))
    again = [f"{summary.failed} questions failed: run.retry_failed=true runs them again"] if summary.failed else []
    rejected = (folder.read_summary() or {})["rejected"]
    print_remarks([*again, *remarks(rejected, folder.rejected), f"texts: {output}"], console)
    return 0


def _as_run(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run whose method is the collection, over solved questions."""
    own = {name: settings[name] for name in config.SECTIONS}
    material = {**settings["material"], "strict": settings["dataset"]["strict"]}
    choices = {**settings["choices"], "method": settings["collect"]["name"]}
    return {**own, "dataset": material, "method": settings["collect"], "choices": choices}


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
