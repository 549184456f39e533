"""`kgqa collect corrections`: collect what a teacher would have written at the calls of a model's own runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import config
from pipeline.cli.arguments import Arguments, OutputKey
from pipeline.cli.evaluate import configurations_of
from pipeline.cli.output import Output
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath
from pipeline.training.corrections import Report, read_corrections, table
from pipeline.training.rows import write_collected


def run(arguments: Arguments) -> Output:
    """Write the calls that the model of the runs got wrong, with the teacher's replies, and their report."""
    composed = arguments.compose()
    report, output = Report(), Path(config.build_own(OutputKey, composed).output)
    write_collected(asyncio.run(_rows(arguments.run_folders(), composed, report)), report, output)
    return Output({**report.document(), "output": str(output)}, [table(report)], notes=[f"rows: {output}"])


async def _rows(runs: Sequence[StoragePath], composed: Mapping[str, Any], report: Report) -> list[dict[str, Any]]:
    source, selection = config.build("material", composed), config.build("collect", composed)
    rows: list[dict[str, Any]] = []
    async with config.build("llm", {"llm": config.models(composed["llm"])[None]}) as teacher:
        for run in runs:
            configs = [each.config for each in configurations_of(Arguments(words=(str(run / "run.yaml"),)))]
            found = read_corrections(
                RunFolder(run),
                configs,
                teacher=teacher,
                source=source,
                selection=selection,
                report=report,
            )
            rows += [row async for row in found]
    return rows
