"""`kgqa simulate`: what a cluster of so many GPUs would make of the datasets, and where the design saturates first."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass
from rich.console import Console

from jobs.cli import guard
from jobs.common import help_text, print_remarks, wants_help
from pipeline import config
from pipeline.analysis.simulation.demand import OWN, Demand, Demands, mean, of_runs, read, save
from pipeline.analysis.simulation.simulate import Cluster, Outcome, draw, simulate
from pipeline.errors import UserError
from pipeline.evaluation.table import plain_table
from pipeline.traces.place import write_whole

_IDLE = 0.7
"""Where no station is busier than this, it is the questions that there are too few of."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Plan:
    """The keys of `conf/simulate.yaml`, which explains them."""

    gpus: tuple[PositiveInt, ...] = Field(min_length=1)
    questions: Mapping[str, PositiveInt]
    demand: Path | None
    save: Path | None
    output: Path | None
    prompt_tokens_per_s: PositiveFloat
    slots_per_gpu: PositiveInt
    reply_tokens_per_s: PositiveFloat
    usd_per_gpu_hour: PositiveFloat
    gpus_per_machine: PositiveInt
    in_flight_per_gpu: PositiveInt
    gpus_per_replica: PositiveInt
    shard_size: PositiveInt
    leases_per_s: PositiveFloat
    cpu_ms_per_call: PositiveFloat
    requests_per_s: PositiveFloat
    entities_per_s: PositiveFloat
    puts_per_s: PositiveFloat
    seed: int

    def cluster(self, gpus: int) -> Cluster:
        """Of so many GPUs."""
        machines = math.ceil(gpus / self.gpus_per_machine)
        return Cluster(
            lease_s=1 / self.leases_per_s,
            workers=machines,
            call_s=self.cpu_ms_per_call / 1000,
            ingresses=machines,
            request_s=1 / self.requests_per_s,
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
    """A table, for a terminal or a page."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def main(argv: list[str]) -> int:
    """Simulate what the project measured, or what the runs that are named asked."""
    if wants_help(argv):
        print(help_text("kgqa simulate [RUN …] [key=value] …", argv, name="simulate"))
        return 0
    runs = [Path(word) for word in argv if "=" not in word]
    plan: Plan = config.build_whole(config.compose([word for word in argv if "=" in word], name="simulate"))
    if runs and plan.demand:
        raise UserError("name runs or a file of what they asked (demand=), not both")
    demands = of_runs(runs, list(plan.questions)) if runs else read(plan.demand or OWN)
    if missing := sorted(demands.keys() - plan.questions.keys()):
        raise UserError(
            f"questions.{missing[0]} must be given: how many questions the dataset has, as +questions.{missing[0]}=1000"
        )
    if plan.save:
        save(demands, plan.save)
    with Console(stderr=True).status("simulating …") as status:
        tables = []
        for table in _tables(demands, plan):
            status.update(f"simulated {table.title} …")
            tables.append(table)
    _show(tables, plan)
    return 0


def _show(tables: Sequence[Table], plan: Plan) -> None:
    if plan.output:
        write_whole(plan.output, _page(tables, plan).encode())
        print(plan.output)
        return
    console = Console()
    for table in tables:
        printed = plain_table(table.title)
        for heading in table.headings:
            printed.add_column(heading, overflow="fold")
        for row in table.rows:
            printed.add_row(*(cell.replace(", ", "\n") for cell in row))
        console.print(printed)
    print_remarks([_reading()], console)


def _reading() -> str:
    return (
        "of each run: wall time, US dollars, and the busiest part with its share of busy time; `few questions` where "
        f"no part is busy for {100 * _IDLE:.0f} % of the time: the last questions' own calls take it"
    )


def _tables(demands: Demands, plan: Plan) -> Iterator[Table]:
    sizes = [f"{gpus:,} GPU{'s' * (gpus > 1)}" for gpus in plan.gpus]
    for dataset, asked in plan.questions.items():
        if (methods := demands.get(dataset)) is None:
            continue
        rows = [[method, *(_cell(rows, asked, gpus, plan) for gpus in plan.gpus)] for method, rows in methods.items()]
        yield Table(f"{dataset}, {asked:,} questions", ["method", *sizes], rows)
    yield Table(
        "where one of each part is saturated", ["part", "its limit", "GPUs", "then"], list(_limits(demands, plan))
    )


def _cell(demands: Sequence[Demand], asked: int, gpus: int, plan: Plan) -> str:
    outcome = simulate(plan.cluster(gpus), draw(demands, asked, seed=plan.seed))
    price = outcome.wall_s / 3600 * gpus * plan.usd_per_gpu_hour
    return f"{_duration(outcome.wall_s)}, ${price:,.2f}, {_busiest(outcome)}"


def _busiest(outcome: Outcome) -> str:
    share = outcome.busy[outcome.bottleneck]
    return f"{outcome.bottleneck if share > _IDLE else 'few questions'} {100 * share:.0f} %"


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds / 60:,.1f} min"


def _limits(demands: Demands, plan: Plan) -> Iterator[tuple[str, str, str, str]]:
    """Per part how many busy GPUs saturate one of it: under the method that asks most of it, and under the least."""
    pairs = {
        f"{method} on {dataset}": mean(rows) for dataset, methods in demands.items() for method, rows in methods.items()
    }
    questions = {name: _per_gpu(each, plan) for name, each in pairs.items()}
    calls = {name: rate * pairs[name]["calls"] for name, rate in questions.items()}
    entities = {name: rate * pairs[name]["entities"] for name, rate in questions.items()}
    shards = {name: rate / plan.shard_size for name, rate in questions.items()}
    parts = (
        (
            "ingress",
            plan.requests_per_s,
            "requests/s",
            calls,
            "more ingresses or llm=endpoint straight to the servers",
        ),
        ("question worker", 1000 / plan.cpu_ms_per_call, "calls/s", calls, "more of engine.workers"),
        ("Virtuoso replica", plan.entities_per_s, "entities/s", entities, "more replicas from the same database"),
        ("coordinator", plan.leases_per_s, "leases/s", shards, "a larger engine.shard_size"),
        ("object store", plan.puts_per_s, "objects/s", shards, "a larger engine.shard_size"),
    )
    found = []
    for part, limit, unit, rates, then in parts:
        gpus = sorted((limit / rate, name) for name, rate in rates.items() if rate)
        (least, hardest), (most, easiest) = gpus[0], gpus[-1]
        found.append(
            (least, (part, f"{limit:,.0f} {unit}", f"{_count(least)} ({hardest}) to {_count(most)} ({easiest})", then))
        )
    yield from (row for _, row in sorted(found))


def _per_gpu(question: Mapping[str, float], plan: Plan) -> float:
    """Questions that a busy GPU gets through in a second, reading and writing at the same time."""
    reading_s = question["prompt_tokens"] / plan.prompt_tokens_per_s
    writing_s = question["completion_tokens"] / (plan.reply_tokens_per_s * plan.slots_per_gpu)
    return 1 / max(reading_s, writing_s)


def _count(gpus: float) -> str:
    return f"{gpus:,.0f}" if gpus >= 10 else f"{gpus:.1f}"


def _page(tables: Sequence[Table], plan: Plan) -> str:
    sources = (
        f"Made by `kgqa simulate output={plan.output}`. `conf/simulate.yaml` holds every figure that goes in, with the "
        "command that measured it on two cores, or the word assumption. `kgqa benchmark cluster` holds the simulation "
        "against real runs: it gave 0.89 to 0.97 of the time of four of them, on cores that others used as well."
    )
    demands = (
        "What questions ask was measured on samples of the real questions, over slices of Freebase and over MetaQA, "
        "answered by an oracle that errs in 15 % of its calls; its tokens are counted at four characters each. A "
        "served model writes more, and the whole of Freebase has larger hubs: `kgqa simulate RUN …` projects your own "
        "runs."
    )
    cluster = (
        f"A GPU reads {plan.prompt_tokens_per_s:,.0f} tokens a second, writes {plan.reply_tokens_per_s:g} in each of "
        f"its {plan.slots_per_gpu} slots, and costs ${plan.usd_per_gpu_hour:g} an hour (assumed). "
        f"{plan.gpus_per_machine} of them are a machine with one question worker and one ingress of Ray Serve, "
        f"{plan.gpus_per_replica} share a Virtuoso replica. A cell tells, {_reading()}. `requests_per_s=1e6` shows the "
        "cluster without the ingress, whose workers talk to the model servers themselves."
    )
    paragraphs = ("# A cluster on paper", sources, demands, cluster)
    head = [line for text in paragraphs for line in (textwrap.fill(text, 120, break_on_hyphens=False), "")]
    return "\n".join([*head, *(line for table in tables for line in _markdown(table))])


def _markdown(table: Table) -> Iterator[str]:
    yield f"## {table.title}\n"
    for cells in (table.headings, ["---"] * len(table.headings), *table.rows):
        yield f"| {' | '.join(cells)} |"
    yield ""


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
