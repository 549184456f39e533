"""`kgqa references`: build SRP's base of solved training questions (methods.md §7.1)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jobs.cli import guard
from jobs.common import help_text, wants_help
from pipeline import config
from pipeline.datasets.port import Dataset
from pipeline.errors import UserError
from pipeline.retrieval.reference_builder import BuildReport, build_references
from pipeline.retrieval.references import ReferenceBase
from pipeline.types import Example, Rejected


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Plan:
    """The `references` section of the configuration."""

    output: Path | None
    clusters: PositiveInt
    per_cluster: PositiveInt
    held_out: dict[str, Any] | None


def main(argv: list[str]) -> int:
    """Build the base that Hydra overrides `argv` describe, write it and print what became of the questions."""
    if wants_help(argv):
        print(help_text("kgqa references [group=choice] [key=value] …", argv, name="references"))
        return 0
    settings = config.compose(argv, name="references")
    config.check(settings, ("run", "dataset", "kg", "retrieval"))
    plan: Plan = config.build("references", settings)
    dataset: Dataset = config.build("dataset", settings)
    base, report = asyncio.run(_build(plan, settings, dataset))
    if not base.references:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.rejected.items())
        raise UserError(f"none of {report.questions:,} questions can be a reference ({reasons}); nothing was written")
    output = plan.output or Path("references") / f"{dataset.name}.jsonl"
    base.save(output)
    _print(base, report, output)
    return 0


async def _build(plan: Plan, settings: Mapping[str, Any], dataset: Dataset) -> tuple[ReferenceBase, BuildReport]:
    encoder = config.build("retrieval", settings).encoder
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("references", total=plan.clusters * plan.per_cluster)
        async with config.build("kg", settings) as graph:
            return await build_references(
                islice(_examples(settings, dataset), settings["run"]["limit"]),
                graph,
                encoder,
                held_out=_held_out(plan, settings),
                clusters=plan.clusters,
                per_cluster=plan.per_cluster,
                seed=settings["run"]["seed"],
                on_drawn=lambda reference: progress.advance(task, reference is not None),
            )


def _held_out(plan: Plan, settings: Mapping[str, Any]) -> set[str]:
    """The texts of the questions that must not become references."""
    if plan.held_out is None:
        return set()
    other = {**settings, "dataset": {**settings["dataset"], **plan.held_out}}
    return {example.question.text for example in _examples(other, config.build("dataset", other))}


def _examples(settings: Mapping[str, Any], dataset: Dataset) -> Iterator[Example]:
    """The readable rows of a dataset. With `dataset.strict`, raises UserError for the first that is not."""

    def reject(row: Rejected) -> None:
        sentence = f"{row.file} line {row.line}: {row.reason}"
        if settings["dataset"]["strict"]:
            raise UserError(sentence)
        print(f"not read: {sentence}", file=sys.stderr)

    return dataset.examples(reject)


def _print(base: ReferenceBase, report: BuildReport, output: Path) -> None:
    print(f"{report.questions:>10,} questions read, of which {report.eligible:,} could become references")
    for reason, count in report.rejected.most_common():
        print(f"{count:>10,} passed over: {reason}")
    print(f"{report.clusters:>10,} clusters")
    print(f"{len(base.references):>10,} references in {output}")


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
