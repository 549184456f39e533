"""`kgqa train …`: train a Llama on collected texts, with Ray Train."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic.dataclasses import dataclass

from pipeline import config
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.console import Console
from pipeline.errors import UserError
from pipeline.text import counted

if TYPE_CHECKING:
    from pipeline.training.sft.job import Record

_SHOWN = ("loss", "eval_loss", "eval_accuracy")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The keys of `conf/train_arg.yaml` and its like that are in no section."""

    output: str
    texts: str | tuple[str, ...]
    model: str
    storage: str


def run(arguments: Arguments) -> Output:
    """Train the model that the configuration describes, or continue, and write it."""
    return train_model(arguments.compose())


def train_model(settings: Mapping[str, Any]) -> Output:
    """Train, write the model, and describe it."""
    plan = config.build_own(Plan, settings)
    output = Path(plan.output)
    if output.exists():
        raise UserError(f"{output} already exists: give another output=")
    sft_config, workers = config.build("recipe", settings), config.build("workers", settings)
    texts = tuple(Path(file).resolve() for file in ([plan.texts] if isinstance(plan.texts, str) else plan.texts))
    from pipeline.training.sft.job import fine_tune
    from pipeline.training.sft.worker import Task

    # Workers have a folder of their own.
    model = str(Path(plan.model).resolve()) if Path(plan.model).exists() else plan.model
    task = Task(model, texts, sft_config, sft_config.texts_per_device(workers.count), workers.gpus, workers.sharded)
    made = fine_tune(task, workers, Path(plan.storage), Curve(Console(stderr=True)))
    made.save(output, sft_config.weights)
    weights, curves = made.model.num_parameters(), plan.storage
    figures = {"output": str(output), "weights": weights, "curves": curves}
    return Output(figures, lines=[f"{output}: a Llama of {weights:,} weights, its curves in {curves}"])


class Curve:
    """Prints a line for each log record, with the remaining time."""

    def __init__(self, console: Console) -> None:
        """Print to `console`."""
        self._console = console
        self._begun: tuple[float, float] | None = None

    def __call__(self, record: Record, steps: int) -> None:
        """Print a record; `steps` is the number of the last step."""
        if "texts" in record:
            self._console.print(_text_counts(record), highlight=False)
            return
        step, now = record["step"], time.monotonic()
        first_step, first = self._begun = self._begun or (step, now)
        figures = [f"{name.replace('_', ' ')} {record[name]:.4g}" for name in _SHOWN if name in record]
        if not figures:
            return
        if first_step < step < steps:
            figures.append(f"{(now - first) / (step - first_step) * (steps - step) / 60:.0f} min left")
        self._console.print(" · ".join([f"step {step:,}/{steps:,}", *figures]), highlight=False)


def _text_counts(record: Record) -> str:
    """Return how many texts there are and how many are left out."""
    too_long = f", {record['left_out']:,.0f} left out as longer than recipe.max_tokens" if record["left_out"] else ""
    return f"{counted(int(record['texts']), 'text')}{too_long}"
