"""`kgqa collect calls`: extract the model calls of finished runs as fine-tuning data (distillation)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pipeline import config
from pipeline.cli.arguments import Arguments, OutputKey
from pipeline.cli.output import Output
from pipeline.console import Console
from pipeline.errors import UserError
from pipeline.llm.interface import simulated
from pipeline.text import counted
from pipeline.traces.folder import RunFolder
from pipeline.training.call_collection import Report, read_calls, tables
from pipeline.training.rows import write_collected

_SHOWN_EVERY = 1000


def run(arguments: Arguments) -> Output:
    """Write the calls of the run folders that may be learned from, and their report."""
    composed = arguments.compose()
    material, selection = config.build("material", composed), config.build("collect", composed)
    folders = list(map(RunFolder, arguments.run_folders()))
    report, output = Report(), Path(config.build_own(OutputKey, composed).output)
    write_collected(_with_progress(read_calls(folders, material, selection, report)), report, output)
    if not report.selected:
        reasons = ", ".join(f"{count:,}: {reason}" for reason, count in report.rejected.most_common(3))
        found = f"none of {counted(report.calls, 'call')} may be learned from ({reasons})"
        raise UserError(found if report.calls else "the runs have no call of a model")
    figures = {**report.document(), "output": str(output)}
    return Output(figures, tables(report), notes=[*_notes(folders), f"rows: {output}"])


def _with_progress(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows, and show how many there were."""
    with Console(stderr=True).status("reading the traces") as status:
        for number, row in enumerate(rows, start=1):
            if number % _SHOWN_EVERY == 0:
                status.update(f"reading the traces: {counted(number, 'row')}")
            yield row


def _notes(folders: Iterable[RunFolder]) -> Iterator[str]:
    for folder in folders:
        served = (folder.read_run() or {"served": []})["served"]
        names = [simulated(one["label"]) for one in served]
        if any(names):
            partly = "" if all(names) else "partly "
            said = ", ".join(dict.fromkeys(filter(None, names)))
            yield f"{folder.path} was {partly}answered by {said}, not by a language model"
        if folder.read_summary() is None:
            yield f"{folder.path} is not finished: only its committed questions were read"
