"""`kgqa collect corrections`: collect what a teacher would have written at the calls of a model's own runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from pipeline import config
from pipeline.cli.arguments import Arguments, Trust
from pipeline.cli.evaluate import configurations_of
from pipeline.cli.output import Output
from pipeline.engine.configuration import Configuration
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath
from pipeline.training.corrections import Report, read_corrections, table
from pipeline.training.rows import write_collected


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The keys of `conf/collect_corrections.yaml` that are in no section of a component."""

    output: str
    run: Trust


def run(arguments: Arguments) -> Output:
    """Write the calls that the model of the runs got wrong, with the teacher's replies, and their report."""
    composed = arguments.compose()
    plan, report = config.build_own(Plan, composed), Report()
    output = Path(plan.output)
    configurations = {
        run: configurations_of(Arguments(words=[str(run / "run.yaml")], overrides=[plan.run.word]))
        for run in arguments.run_folders()
    }
    write_collected(asyncio.run(_rows(configurations, composed, report)), report, output)
    return Output({**report.document(), "output": str(output)}, [table(report)], notes=[f"rows: {output}"])


async def _rows(
    runs: Mapping[StoragePath, Sequence[Configuration]], composed: Mapping[str, Any], report: Report
) -> list[dict[str, Any]]:
    source, selection = config.build("material", composed), config.build("collect", composed)
    rows: list[dict[str, Any]] = []
    async with config.build("llm", {"llm": config.models(composed["llm"])[None]}) as teacher:
        for run, configurations in runs.items():
            found = read_corrections(
                RunFolder(run),
                [each.config for each in configurations],
                teacher=teacher,
                source=source,
                selection=selection,
                report=report,
            )
            rows += [row async for row in found]
    return rows
