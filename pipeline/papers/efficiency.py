"""The efficiency of R3-Cycle and Graph-CoT (specification §11.5), and how often a retry recovered (§9.5)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import polars as pl

from pipeline.evaluation.configuration_summary import SECONDS, ConfigurationSummary
from pipeline.papers.reproduction import PlannedFigure, dataset_key
from pipeline.percentages import percentage
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards

PAPER = "R3-Cycle"
HEADINGS = (
    *("row", "dataset", "calls", "tokens", "seconds"),
    *("seconds of a retry, with queues", "halted, recovered", "incorrect, recovered"),
)
_NOT_KNOWN = "not known"
_STAT = Path("/proc/stat")
_EVERY_S = 2.0
"""Seconds between two readings of the GPUs."""
_GPU_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """The cost of one row of the paper on one dataset, per question, and what its retries achieved."""

    row: str
    dataset: str
    calls: float
    tokens: float
    """Prompt and completion tokens."""
    seconds: float | None
    """Of the critical path, without queues, as if it had run alone; None if the traces do not have it."""
    retry_s: float | None
    """Mean seconds from the end of the first attempt to the end of the last, over the questions with a retry.

    They include the queues: many questions run at the same time.
    """
    retried: int
    recovered: Mapping[str, tuple[float, int]]
    """By `halted` and `incorrect`: the share with a better score after the retry, and the number of questions."""

    def cells(self) -> tuple[str, ...]:
        """Return the texts of the table row, in the order of `HEADINGS`."""
        retry = f"{_NOT_KNOWN if self.retry_s is None else f'{self.retry_s:.2f}'} (of {self.retried:,})"
        shares = {failure: self.recovered.get(failure) for failure in ("halted", "incorrect")}
        recovered = (
            f"none {failure}" if share is None else f"{percentage(share[0])} % of {share[1]:,}"
            for failure, share in shares.items()
        )
        seconds = _NOT_KNOWN if self.seconds is None else f"{self.seconds:.2f}"
        costs = (f"{self.calls:.1f}", f"{self.tokens:,.0f}", seconds)
        return (self.row, self.dataset, *costs, retry if self.retried else "no retry", *recovered)


@dataclass(slots=True)
class MachineLoad:
    """The mean use of this machine, by all processes, in percent; None where it cannot be read."""

    cpu: float | None = None
    gpu: float | None = None
    """Over all GPUs."""
    gpu_readings: list[float] = field(default_factory=list)
    """Each reading of each GPU."""

    def __str__(self) -> str:
        texts = (f"{name} {'not known' if use is None else f'{use:.0f} %'}" for name, use in self.by_device().items())
        return f"mean use of this machine in this run: {', '.join(texts)}"

    def by_device(self) -> dict[str, float | None]:
        """Return the use by `CPU` and `GPU`."""
        return {"CPU": self.cpu, "GPU": self.gpu}


@contextmanager
def machine_load() -> Iterator[MachineLoad]:
    """Measure the use of the machine while the context is open; it is filled in at the end."""
    load, stop, before = MachineLoad(), Event(), _cpu_seconds()
    sampler = Thread(target=_read_gpus, args=(load, stop), daemon=True)
    sampler.start()
    try:
        yield load
    finally:
        stop.set()
        sampler.join()
        after = _cpu_seconds()
        if before and after and after[1] > before[1]:
            load.cpu = 100 * (after[0] - before[0]) / (after[1] - before[1])
        if load.gpu_readings:
            load.gpu = sum(load.gpu_readings) / len(load.gpu_readings)


def efficiency(
    planned: Sequence[PlannedFigure],
    folder: RunFolder,
    summaries: Sequence[ConfigurationSummary],
    configurations: Sequence[tuple[str, ...]],
    *,
    timed: Sequence[bool],
) -> list[Efficiency]:
    """Return the cost of each row of the paper that was run, on each dataset, with its first seed.

    `timed` says of each configuration whether its seconds mean anything.
    """
    numbers = {overrides: number for number, overrides in enumerate(configurations)}
    retries = _retries(folder)
    found: dict[int, Efficiency] = {}
    for each in planned:
        if each.figure.paper != PAPER or not each.configurations:
            continue
        number = numbers[each.configurations[0]]
        seconds = retries.get(number, [])
        summary = summaries[number]
        critical_s = summary.counters.get(SECONDS) if timed[number] else None
        scores = {name.removeprefix("recovered_"): score for name, score in summary.scores.items()}
        dataset = f"{dataset_key(each.figure)}{' (run on another dataset)' if each.substituted else ''}"
        row = Efficiency(
            row=summary.method,
            dataset=dataset,
            calls=summary.counters["llm_calls"] / summary.questions,
            tokens=summary.counters["tokens"] / summary.questions,
            seconds=None if critical_s is None else critical_s / summary.questions,
            retry_s=sum(seconds) / len(seconds) if seconds and timed[number] else None,
            retried=len(seconds),
            recovered={
                failure: (scores[failure].mean, scores[failure].questions)
                for failure in ("halted", "incorrect")
                if failure in scores
            },
        )
        found.setdefault(number, row)
    return [row for row in found.values() if row.row != "cot"]


def _retries(folder: RunFolder) -> dict[int, list[float]]:
    """Return, by configuration, the seconds of the retries of each question that has one."""
    step = pl.col("steps").struct
    ends = (
        rows.with_row_index("question")
        .explode("steps")
        .select("point", "question", role=step.field("role"), start_s=step.field("start_s"))
        .filter(role="attempt_end")
        .group_by("point", "question")
        .agg(attempts=pl.len(), seconds=pl.col("start_s").max() - pl.col("start_s").min())
        .filter(pl.col("attempts") > 1)
        for rows in read_shards(folder, ["point", "steps"])
    )
    found: dict[int, list[float]] = {}
    for point, _, _, seconds in pl.concat(ends).iter_rows():
        found.setdefault(point, []).append(seconds)
    return found


def _cpu_seconds() -> tuple[float, float] | None:
    """Return the busy time and all time of the CPUs since the machine started, in the same unit."""
    try:
        times = [float(text) for text in _STAT.read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    idle = times[3] + times[4]
    return sum(times) - idle, sum(times)


def _read_gpus(load: MachineLoad, stop: Event) -> None:
    """Read the use of the GPUs until told to stop."""
    if shutil.which(_GPU_QUERY[0]) is None:
        return
    while True:
        try:
            printed = subprocess.run(_GPU_QUERY, capture_output=True, text=True, timeout=30, check=True).stdout  # noqa: S603
            load.gpu_readings += map(float, printed.split())
        except (OSError, ValueError, subprocess.SubprocessError):
            return
        if stop.wait(_EVERY_S):
            return
