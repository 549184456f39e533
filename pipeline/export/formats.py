"""The formats of `kgqa export`: what each one is, and the function that writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.errors import UserError
from pipeline.export import every_eval_ever, inspect_log, mlflow_runs, otel_spans, wandb_runs
from pipeline.export.exported_run import ExportedConfiguration
from pipeline.extras import require
from pipeline.suggestions import did_you_mean

Write = Callable[[ExportedConfiguration, str], Iterator[str]]
"""Writes one configuration to an output, and yields what it wrote, one line each. Raises UserError."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format."""

    write: Write
    output: str
    """The output if none is named; `{run}` is the run folder."""
    extra: str | None = None
    """The extra that it needs."""


FORMATS: Mapping[str, Format] = {
    "inspect": Format(inspect_log.write, "{run}/inspect"),
    "otel": Format(otel_spans.write, "{run}/otel"),
    "every-eval-ever": Format(every_eval_ever.write, "{run}/every-eval-ever"),
    "mlflow": Format(mlflow_runs.write, "sqlite:///mlflow.db", extra="mlflow"),
    "wandb": Format(wandb_runs.write, "kgqa", extra="wandb"),
}


def find_format(name: str) -> Format:
    """Return the format of this name. Raises UserError if there is none, or its extra is not installed."""
    chosen = FORMATS.get(name)
    if chosen is None:
        raise UserError(f"there is no format={name}.{did_you_mean(name, FORMATS)} Known: {', '.join(FORMATS)}")
    if chosen.extra:
        require(chosen.extra, f"format={name}")
    return chosen


def export(configurations: Sequence[ExportedConfiguration], name: str, output: str | None) -> list[str]:
    """Write configurations of a run in a format. Returns what was written. Raises UserError."""
    chosen = find_format(name)
    target = output or chosen.output.format(run=configurations[0].folder.path)
    return [line for exported in configurations for line in chosen.write(exported, target)]
