"""`kgqa estimate`: ask a sample of the questions, and project what all of them will cost."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from itertools import islice
from typing import Any

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobs.cli import guard
from jobs.common import help_text, print_remarks, wants_help
from jobs.sweep import run_points
from pipeline import config
from pipeline.analysis.estimate import MEASURES, Projection, measure, project, together
from pipeline.engine.run import Point
from pipeline.engine.sweep import Sweep
from pipeline.errors import UserError
from pipeline.evaluation.table import plain_table

USAGE = "kgqa estimate [group=choice,choice] [key=value,value] [estimate.questions=N] … | POINTS.txt [key=value] …"
_SAMPLED = "pipeline.datasets.sampled.Sampled"
_OWN = "estimate."


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Plan:
    """The `estimate` section of the configuration."""

    questions: int = Field(ge=2)
    gpus: PositiveInt
    tokens_per_s_per_gpu: PositiveFloat | None
    usd_per_gpu_hour: PositiveFloat | None


class Sampling(Sweep):
    """A sweep whose points ask a sample of their questions, in a run folder of its own."""

    def __init__(self, questions: int, console: Console) -> None:
        """Ask so many."""
        super().__init__(console)
        self._questions = questions
        self.wholes: list[Mapping[str, Any]] = []
        """The points as they would be run whole."""

    def in_place(self, point: Point) -> Point:
        """The point over the sample. `run.dir` is left to the whole run."""
        self.wholes.append(point.config)
        run, dataset = point.config["run"], point.config["dataset"]
        sampled = {
            "_target_": _SAMPLED,
            "dataset": dataset,
            "questions": self._questions,
            "limit": run["limit"],
            "strict": dataset.get("strict", False),
        }
        place = f"{run['dir']}-sample" if run["dir"] else None
        sampled_run = {**run, "dir": place, "limit": None, "halving": None}
        return super().in_place(replace(point, config={**point.config, "dataset": sampled, "run": sampled_run}))


@plain_dataclass(frozen=True)
class Line:
    """A figure as it is printed."""

    what: str
    projection: Projection | None
    """None where an assumption is missing."""
    known: str
    """How it is known: measured, counted or assumed."""
    form: str = "{:,.0f}"


def main(argv: list[str]) -> int:
    """Run the sample of one configuration or of a sweep's points, and print what the whole would cost."""
    if wants_help(argv):
        print(help_text(USAGE, [word for word in argv if "," not in word], name="estimate"))
        return 0
    own = [word for word in argv if word.startswith(_OWN)]
    plan: Plan = config.build("estimate", config.compose(own, name="estimate"))
    sampling = Sampling(plan.questions, Console(stderr=True))
    run_points([word for word in argv if word not in own], sampling)
    lines, notes = estimate(sampling, plan)
    console = Console()
    console.print(_table(lines, sampling))
    print_remarks([*notes, *_remarks(sampling)], console)
    return 0


def estimate(sampling: Sampling, plan: Plan) -> tuple[list[Line], list[str]]:
    """The figures of the whole run, and what they rest on. Raises UserError where the sample tells too little."""
    total = together(list(_parts(sampling)))
    simulated = _label(sampling)
    tokens = total["prompt_tokens"] + total["completion_tokens"]
    rate = plan.tokens_per_s_per_gpu or (None if simulated else _measured_rate(sampling, plan.gpus))
    serving = tokens.times(1 / rate / plan.gpus) if rate else None
    engine = sampling.wholes[0]["engine"]
    in_flight = engine["concurrency"] * engine.get("workers", 1)
    waiting = total["busy_s"].times(1 / in_flight)
    gpu_hours = serving.times(plan.gpus / 3600) if serving else None
    price = gpu_hours.times(plan.usd_per_gpu_hour) if gpu_hours and plan.usd_per_gpu_hour else None
    counted = "4 characters each" if simulated else "measured"
    known = ("assumed rate" if plan.tokens_per_s_per_gpu else "measured rate") if rate else "rate is missing"
    lines = [
        Line("calls, each point alone", total["logical_calls"], "measured"),
        Line("calls that are made", total["physical_calls"], "measured"),
        Line("prompt tokens", total["prompt_tokens"], counted),
        Line("completion tokens", total["completion_tokens"], counted),
        Line("graph queries", total["kg_queries"], "measured"),
        Line("GPU hours", gpu_hours, known, "{:,.2f}"),
        *([Line("US dollars", price, "assumed price", "{:,.2f}")] if plan.usd_per_gpu_hour else []),
        Line("hours", waiting.or_longer(serving).times(1 / 3600) if serving else None, known, "{:,.2f}"),
    ]
    return lines, list(_basis(plan, rate, in_flight, simulated))


def _basis(plan: Plan, rate: float | None, in_flight: int, simulated: str | None) -> Iterator[str]:
    """What the figures rest on."""
    if simulated:
        yield "tokens are counted at four characters each: no tokenizer has seen the texts"
    if rate is None:
        yield "GPU hours, and hours with the model's time in them, want a rate: give estimate.tokens_per_s_per_gpu"
        return
    source = "assumed" if plan.tokens_per_s_per_gpu else "measured under the load of the sample"
    load = f"estimate.gpus={plan.gpus}, {in_flight:,} questions in flight"
    yield f"rate: {rate:,.0f} tokens a second per GPU, {source}; {load}"


def _parts(sampling: Sampling) -> Iterator[dict[str, Projection]]:
    """The totals over each set of questions that points ask together."""
    wholes = iter(sampling.wholes)
    for folder, summaries in sampling.batches:
        groups: defaultdict[str, list[int]] = defaultdict(list)
        of_batch = list(islice(wholes, len(summaries)))
        for number, whole in enumerate(of_batch):
            groups[config.canonical([whole["dataset"], whole["run"]["limit"]])].append(number)
        for numbers in groups.values():
            whole = of_batch[numbers[0]]
            yield project(measure(folder, numbers), _questions(whole), config.build("evaluation", whole))


def _questions(whole: Mapping[str, Any]) -> int:
    """How many questions the whole run asks."""
    examples = config.build("dataset", whole).examples(lambda _: None)
    return sum(1 for _ in islice(examples, whole["run"]["limit"]))


def _label(sampling: Sampling) -> str | None:
    """What answered the sample, where it was no language model."""
    return next((point.label for _, points in sampling.batches for point in points if point.label), None)


def _measured_rate(sampling: Sampling, gpus: int) -> float:
    """Tokens per second and GPU while the sample was asked."""
    tokens = seconds = 0.0
    for folder, summaries in sampling.batches:
        made = dict(zip(MEASURES, measure(folder, range(len(summaries))).sum(axis=0), strict=True))
        tokens += made["prompt_tokens"] + made["completion_tokens"]
        times = folder.read_summary() or {}
        seconds += times["wall_s"] - times["opening_s"]
    if not tokens:
        raise UserError(
            "the sample made no call of its own: leave out run.reuse, or give estimate.tokens_per_s_per_gpu"
        )
    return tokens / seconds / gpus


def _table(lines: Sequence[Line], sampling: Sampling) -> Table:
    asked = max(point.questions for _, points in sampling.batches for point in points)
    whole = sampling.wholes[0]
    confidence = config.build("evaluation", whole).confidence
    table = plain_table(f"projected from {asked} of {_questions(whole):,} questions")
    table.add_column("of the whole run", no_wrap=True)
    table.add_column("estimate", justify="right", no_wrap=True)
    table.add_column(f"{100 * confidence:g} % interval", justify="right", no_wrap=True)
    table.add_column("how it is known", overflow="fold")
    for line in lines:
        if (one := line.projection) is None:
            table.add_row(line.what, "–", "", Text(line.known))
            continue
        value, low, high = (line.form.format(each) for each in (one.value, one.low, one.high))
        table.add_row(line.what, value, f"{low}–{high}", Text(line.known))
    return table


def _remarks(sampling: Sampling) -> Iterator[str]:
    points = [point for _, points in sampling.batches for point in points]
    if failed := sum(point.failed for point in points):
        yield f"{failed} of the sampled questions failed, and count with what they cost until then"
    if label := _label(sampling):
        yield f"answered by {label}: a language model errs elsewhere, and its replies are longer or shorter"
    if sampling.wholes[0]["run"]["halving"]:
        yield "run.halving drops points on the way: this is what it costs if none is dropped"
    folders = ",".join(str(folder.path) for folder, _ in sampling.batches)
    yield f"the calls of the sample need not be made again: add run.reuse=[{folders}]"


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
