"""`kgqa build-references`: build the solved training questions that SRP shows (specification §7.1)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pipeline import config
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.console import Console
from pipeline.datasets.interface import Dataset
from pipeline.datasets.selection import Selection
from pipeline.errors import UserError
from pipeline.retrieval.reference_builder import HELD_OUT, BuildReport, build_references
from pipeline.retrieval.references import ReferenceBase
from pipeline.text import counted, printable
from pipeline.types import Example, Rejected


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Plan:
    """The `references` section of the configuration. The keys are described in `conf/build_references.yaml`."""

    output: Path | None
    clusters: PositiveInt
    per_cluster: PositiveInt
    mask: bool
    held_out: dict[str, Any] | None


def run(arguments: Arguments) -> Output:
    """Build the references that the configuration describes, write them, and count the questions used."""
    composed = arguments.compose()
    config.check(composed, ("run", "dataset", "kg", "retrieval"))
    plan: Plan = config.build("references", composed)
    dataset: Dataset = config.build("dataset", composed)
    base, report = asyncio.run(_build(plan, composed, dataset))
    if not base.references:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.rejected.items())
        held_out = (
            ". references.held_out selects the questions that are held out; of a dataset without splits, name their "
            "file, as in +references.held_out.questions=FILE"
        )
        raise UserError(
            f"none of {counted(report.questions, 'question')} can be a reference ({reasons}); nothing was written"
            f"{held_out if HELD_OUT in report.rejected else ''}"
        )
    output = plan.output or Path("references") / f"{dataset.name}.jsonl"
    base.save(output)
    figures = {each.name: getattr(report, each.name) for each in fields(report)}
    figures |= {"references": len(base.references), "output": str(output)}
    return Output(figures, lines=_lines(base, report, output))


async def _build(plan: Plan, composed: Mapping[str, Any], dataset: Dataset) -> tuple[ReferenceBase, BuildReport]:
    encoder = config.build("retrieval", composed).encoder
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("references", total=plan.clusters * plan.per_cluster)
        async with config.build("kg", composed) as graph:
            return await build_references(
                Selection.of_run(composed["run"]).select(_examples(composed, dataset)),
                graph,
                encoder,
                held_out=_held_out(plan, composed),
                clusters=plan.clusters,
                per_cluster=plan.per_cluster,
                masked=plan.mask,
                seed=composed["run"]["seed"],
                on_drawn=lambda reference: progress.advance(task, reference is not None),
            )


def _held_out(plan: Plan, composed: Mapping[str, Any]) -> set[str]:
    """Return the texts of the questions that must not become references."""
    if plan.held_out is None:
        return set()
    other = {**composed, "dataset": {**composed["dataset"], **plan.held_out}}
    return {example.question.text for example in _examples(other, config.build("dataset", other))}


def _examples(composed: Mapping[str, Any], dataset: Dataset) -> Iterator[Example]:
    """Yield the readable rows. With `dataset.strict`, raise UserError for the first row that cannot be read."""

    def reject(row: Rejected) -> None:
        if config.is_strict(composed):
            raise UserError(str(row))
        print(f"not read: {printable(str(row))}", file=sys.stderr)

    return dataset.examples(reject)


def _lines(base: ReferenceBase, report: BuildReport, output: Path) -> list[str]:
    return [
        f"{report.questions:>10,} questions read, of which {report.eligible:,} may be drawn",
        *(f"{count:>10,} rejected: {reason}" for reason, count in report.rejected.most_common()),
        f"{report.clusters:>10,} clusters",
        f"{len(base.references):>10,} references in {output}",
    ]
