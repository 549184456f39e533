"""`kgqa capacity`: project wall time, cost and bottleneck for several cluster sizes, by simulation."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass
from rich.table import Table as RichTable

from pipeline import config
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.console import progress
from pipeline.errors import UserError
from pipeline.evaluation.score_tables import plain_table
from pipeline.simulation.cluster.capacity import Cluster, draw_questions, longest_s, simulate
from pipeline.simulation.cluster.workload import (
    PROJECT_WORKLOADS,
    Workloads,
    mean_workload,
    measure_workloads,
    read_workloads,
    save_workloads,
)
from pipeline.suggestions import did_you_mean
from pipeline.text import counted, kgqa
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath, write_whole

_BUSY = 0.9
"""If no station is busier than this, a run ends with questions that wait for their own calls alone."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Plan:
    """The keys of `conf/capacity.yaml`, which documents them."""

    gpus: tuple[PositiveInt, ...] = Field(min_length=1)
    questions: Mapping[str, PositiveInt]
    workload: Path | None
    save: Path | None
    output: Path | None
    prompt_tokens_per_s: PositiveFloat
    slots_per_gpu: PositiveInt
    reply_tokens_per_s: PositiveFloat
    usd_per_gpu_hour: PositiveFloat
    gpus_per_machine: PositiveInt
    workers_per_machine: PositiveInt
    in_flight_per_gpu: PositiveInt
    gpus_per_replica: PositiveInt
    shard_size: PositiveInt
    leases_per_s: PositiveFloat
    cpu_ms_per_call: PositiveFloat
    entities_per_s: PositiveFloat
    puts_per_s: PositiveFloat
    seed: int

    def cluster(self, gpus: int) -> Cluster:
        """Return the cluster with this number of GPUs."""
        return Cluster(
            lease_s=1 / self.leases_per_s,
            workers=math.ceil(gpus / self.gpus_per_machine) * self.workers_per_machine,
            call_s=self.cpu_ms_per_call / 1000,
            gpus=gpus,
            prompt_token_s=1 / self.prompt_tokens_per_s,
            slots=gpus * self.slots_per_gpu,
            token_s=1 / self.reply_tokens_per_s,
            replicas=math.ceil(gpus / self.gpus_per_replica),
            entity_s=1 / self.entities_per_s,
            put_s=1 / self.puts_per_s,
            in_flight=gpus * self.in_flight_per_gpu,
            shard_size=self.shard_size,
        )


class Table(NamedTuple):
    """A table for the terminal or for Markdown."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@plain_dataclass(frozen=True)
class Projection:
    """One simulated run."""

    dataset: str
    questions: int
    method: str
    gpus: int
    wall_s: float
    usd: float
    bottleneck: str
    """The busiest part of the cluster."""
    utilisation: float
    """The share of the time in which the bottleneck is busy, 0 to 1."""
    speedup: float
    """How many times faster the run is than on the first of the clusters."""
    longest_s: float
    """Seconds that the longest question takes alone on this cluster: no run is shorter."""

    def cell(self) -> str:
        """Return the text of a table cell: the wall time, the speed-up, the price and the bottleneck."""
        cell = f"{_duration(self.wall_s)}, {self.speedup:.1f}×, ${self.usd:,.2f}"
        cell += f", {self.bottleneck} {100 * self.utilisation:.0f} %"
        return cell if self.utilisation > _BUSY else f"{cell}, longest question {_duration(self.longest_s)}"


@plain_dataclass(frozen=True)
class Limit:
    """How many busy GPUs saturate one server of a part, under the most and the least demanding method."""

    part: str
    rate: float
    """What one server of the part handles per second."""
    unit: str
    gpus: float
    most_demanding: str
    most_gpus: float
    least_demanding: str
    remedy: str


def run(arguments: Arguments) -> Output:
    """Simulate clusters under the project's measured workloads, or under those of the runs that are named."""
    runs = arguments.run_folders()
    plan: Plan = config.build_whole(arguments.compose())
    if runs and plan.workload:
        raise UserError("give runs or a file of saved workloads (workload=), not both")
    workloads = _measure(runs) if runs else read_workloads(plan.workload or PROJECT_WORKLOADS)
    notes = _check_questions(plan, workloads)
    if plan.save:
        save_workloads(workloads, plan.save)
    limits = _limits(workloads, plan)
    projections = _simulate(workloads, plan)
    tables = [*_projection_tables(projections, plan), _limit_table(limits)]
    figures = {"projections": list(map(asdict, projections)), "limits": list(map(asdict, limits))}
    if plan.output:
        write_whole(plan.output, _page(tables, plan, arguments).encode())
        return Output(figures, notes=[str(plan.output), *notes])
    return Output(figures, [_printed(table) for table in tables], [f"each cell: {_legend()}", *notes])


def _check_questions(plan: Plan, workloads: Workloads) -> list[str]:
    """Return a note on the datasets whose number of questions was not given, but is that of the whole test or dev set.

    Raises UserError for a dataset without a number, and for a number of a dataset that is not among the workloads.
    """
    published = config.compose([], name="capacity")["questions"]
    given = [name for name, number in plan.questions.items() if published.get(name) != number]
    if unknown := [name for name in given if name not in workloads]:
        raise UserError(
            f"questions.{unknown[0]}: no workload of that dataset is given."
            f"{did_you_mean(unknown[0], workloads, 'questions.')} Known: {', '.join(workloads)}"
        )
    if missing := sorted(workloads.keys() - plan.questions.keys()):
        raise UserError(
            f"questions.{missing[0]} is missing: give the number of questions of that dataset, as in "
            f"+questions.{missing[0]}=1000"
        )
    assumed = [name for name in workloads if name not in given]
    if not assumed:
        return []
    names = ", ".join(assumed)
    return [f"questions of {names}: those of the whole test or dev set; questions.{assumed[0]}=… sets another number"]


def _measure(runs: Sequence[StoragePath]) -> Workloads:
    """Measure the workloads of runs, and show how much of them is read."""
    shards = sum(len(RunFolder(run).traces) for run in runs)
    with progress("reading the runs: a run of many questions takes minutes") as shown:
        task = shown.add_task("reading the runs", total=shards)
        return measure_workloads(runs, lambda: shown.advance(task))


def _simulate(workloads: Workloads, plan: Plan) -> list[Projection]:
    """Simulate every cluster, and show how many of the questions are answered."""
    projections: list[Projection] = []
    asked = sum(plan.questions[dataset] * len(methods) for dataset, methods in workloads.items())
    clusters = counted(len(plan.gpus), "cluster")
    smaller = f"gpus=[1] and questions.{next(iter(workloads))}=… make it smaller"
    with progress(f"simulating {counted(asked, 'question')} on {clusters}, which may take minutes; {smaller}") as shown:
        task = shown.add_task("simulating", total=asked * len(plan.gpus))
        for projection in _projections(workloads, plan):
            projections.append(projection)
            shown.update(task, advance=projection.questions)
    return projections


def _projections(workloads: Workloads, plan: Plan) -> Iterator[Projection]:
    for dataset, questions in plan.questions.items():
        for method, measured in workloads.get(dataset, {}).items():
            drawn = draw_questions(measured, questions, seed=plan.seed)
            first_s: float | None = None
            for gpus in plan.gpus:
                cluster = plan.cluster(gpus)
                result = simulate(cluster, drawn)
                first_s = result.wall_s if first_s is None else first_s
                yield Projection(
                    dataset=dataset,
                    questions=questions,
                    method=method,
                    gpus=gpus,
                    wall_s=result.wall_s,
                    usd=result.wall_s / 3600 * gpus * plan.usd_per_gpu_hour,
                    bottleneck=result.bottleneck,
                    utilisation=result.busy[result.bottleneck],
                    speedup=first_s / result.wall_s if result.wall_s else 1.0,
                    longest_s=longest_s(cluster, drawn),
                )


def _limits(workloads: Workloads, plan: Plan) -> list[Limit]:
    """Return the limits of all parts, in the order in which the parts saturate."""
    pairs = {
        f"{method} on {dataset}": mean_workload(rows)
        for dataset, methods in workloads.items()
        for method, rows in methods.items()
    }
    questions = {name: _per_gpu(name, each, plan) for name, each in pairs.items()}
    calls = {name: rate * pairs[name]["calls"] for name, rate in questions.items()}
    entities = {name: rate * pairs[name]["entities"] for name, rate in questions.items()}
    shards = {name: rate / plan.shard_size for name, rate in questions.items()}
    parts = (
        ("question worker", 1000 / plan.cpu_ms_per_call, "calls/s", calls, "more of engine.workers"),
        ("Virtuoso replica", plan.entities_per_s, "entities/s", entities, "more replicas from the same database"),
        ("coordinator", plan.leases_per_s, "leases/s", shards, "a larger engine.shard_size"),
        ("object store", plan.puts_per_s, "objects/s", shards, "a larger engine.shard_size"),
    )
    limits = []
    for part, limit, unit, rates, remedy in parts:
        gpus = sorted((limit / rate, name) for name, rate in rates.items() if rate)
        if gpus:  # a method such as CoT looks nothing up
            limits.append(Limit(part, limit, unit, *gpus[0], *gpus[-1], remedy))
    return sorted(limits, key=lambda each: each.gpus)


def _per_gpu(name: str, question: Mapping[str, float], plan: Plan) -> float:
    """Return the questions per second of a busy GPU that reads and writes at the same time.

    Raises UserError for a workload without tokens.
    """
    reading_s = question["prompt_tokens"] / plan.prompt_tokens_per_s
    writing_s = question["completion_tokens"] / (plan.reply_tokens_per_s * plan.slots_per_gpu)
    if not max(reading_s, writing_s):
        raise UserError(
            f"{name} has no tokens, so no GPU can be planned for it: its run made no call, or its servers count none"
        )
    return 1 / max(reading_s, writing_s)


def _projection_tables(projections: Sequence[Projection], plan: Plan) -> Iterator[Table]:
    sizes = [counted(gpus, "GPU") for gpus in plan.gpus]
    for dataset in dict.fromkeys(each.dataset for each in projections):
        rows: dict[str, list[str]] = {}
        for each in projections:
            if each.dataset == dataset:
                rows.setdefault(each.method, [each.method]).append(each.cell())
        yield Table(
            f"{dataset}, {counted(plan.questions[dataset], 'question')}", ["method", *sizes], list(rows.values())
        )


def _limit_table(limits: Sequence[Limit]) -> Table:
    rows = [
        (
            each.part,
            f"{each.rate:,.0f} {each.unit}",
            " to ".join(
                dict.fromkeys(
                    f"{_count(gpus)} ({run})"
                    for gpus, run in ((each.gpus, each.most_demanding), (each.most_gpus, each.least_demanding))
                )
            ),
            each.remedy,
        )
        for each in limits
    ]
    return Table("number of GPUs that saturate one of each part", ["part", "limit", "GPUs", "remedy"], rows)


def _printed(table: Table) -> RichTable:
    printed = plain_table(table.title)
    for heading in table.headings:
        printed.add_column(heading, overflow="fold")
    for row in table.rows:
        printed.add_row(*(cell.replace(", ", "\n") for cell in row))
    return printed


def _legend() -> str:
    return (
        "wall time, how many times faster that is than the first column, US dollars, and the busiest part with its "
        f"utilisation; if no part is busy for {100 * _BUSY:.0f} % of the time, the last questions wait for their own "
        "calls, and the time that the longest question takes alone stands beside: no run can be shorter"
    )


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds / 60:,.1f} min"


def _count(gpus: float) -> str:
    return f"{gpus:,.0f}" if gpus >= 10 else f"{gpus:.1f}"


def _page(tables: Sequence[Table], plan: Plan, arguments: Arguments) -> str:
    command = kgqa("capacity", *arguments.words, *arguments.overrides)
    sources = (
        f"Generated by `{command}`. `conf/capacity.yaml` holds every input: either with the "
        "command that measured it on two cores, or marked as an assumption. Measured is what the parts of the project "
        "do on a core: the coordinator, a question worker with its client, and Virtuoso. Assumed are the GPUs, the "
        "object store, and that the workers of a machine, each on a core, do not slow each other down. `kgqa benchmark "
        "cluster` compares the simulation with real runs: the simulated time was 0.89 to 0.97 of the real time of four "
        "runs, on cores that other programs used as well. `kgqa benchmark servers` compares the client with the sum of "
        "the rates of 1 to 8 model servers."
    )
    workloads = (
        "The workload of each question was measured on samples of the real questions, over slices of Freebase and over "
        "MetaQA, answered by an oracle with an error rate of 15 %. Its tokens are estimated at four characters each. "
        "A real model writes more, and the whole of Freebase has larger hubs: `kgqa capacity RUN …` projects your own "
        "runs."
    )
    if measured := ", ".join(f"`{each}`" for each in (*arguments.words, plan.workload) if each):
        workloads = f"The workload of each question was measured in {measured}."
    cluster = (
        f"A GPU reads {plan.prompt_tokens_per_s:,.0f} tokens per second, writes {plan.reply_tokens_per_s:g} tokens per "
        f"second in each of its {plan.slots_per_gpu} slots, and costs ${plan.usd_per_gpu_hour:g} per hour (assumed). A "
        f"machine has {plan.gpus_per_machine} GPUs and {plan.workers_per_machine} question workers, which send calls "
        f"to the model servers directly. Each GPU has {counted(plan.in_flight_per_gpu, 'question')} in flight, and "
        f"{plan.gpus_per_replica} GPUs share a Virtuoso replica. Each cell shows {_legend()}."
    )
    paragraphs = ("# The simulated cluster", sources, workloads, cluster)
    head = [line for text in paragraphs for line in (textwrap.fill(text, 120, break_on_hyphens=False), "")]
    return "\n".join([*head, *(line for table in tables for line in _markdown(table))])


def _markdown(table: Table) -> Iterator[str]:
    yield f"## {table.title}\n"
    for cells in (table.headings, ["---"] * len(table.headings), *table.rows):
        yield f"| {' | '.join(cells)} |"
    yield ""
