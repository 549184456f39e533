"""`kgqa train arg|parog|resident`: train a Llama on collected texts, with Ray Train."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from jobs.cli import guard
from jobs.common import run_word
from jobs.train_resident import parts, prepare
from pipeline import config
from pipeline.errors import UserError

if TYPE_CHECKING:
    from pipeline.training.sft.job import Record

USAGE = "kgqa train arg|parog|resident [key=value] …"

_SHOWN = ("loss", "eval_loss", "eval_accuracy")


def main(argv: list[str]) -> int:
    """Run the training that the first word names, with the Hydra overrides that follow."""
    return run_word(argv, USAGE, {"arg": train, "parog": train, "resident": resident})


def resident(settings: Mapping[str, Any]) -> None:
    """Make the resident Llama: collect its texts, and train it from scratch, or go on with either."""
    prepare(settings)
    *first, last = parts(settings)
    for part in first:
        if not Path(part["output"]).exists():
            train(part)
    train(last)


def train(settings: Mapping[str, Any]) -> None:
    """Train what the settings describe, or go on with it, and write the model."""
    output = Path(settings["output"])
    if output.exists():
        raise UserError(f"{output} is there already: name another output=")
    recipe, workers = config.build("recipe", settings), config.build("workers", settings)
    given = settings["texts"]
    texts = tuple(Path(file).resolve() for file in ([given] if isinstance(given, str) else given))
    from pipeline.training.sft.job import fine_tune
    from pipeline.training.sft.worker import Task

    model = settings["model"]
    model = str(Path(model).resolve()) if Path(model).exists() else model  # workers have a folder of their own
    task = Task(model, texts, recipe, recipe.share(workers.count), workers.gpus, workers.sharded)
    made = fine_tune(task, workers, Path(settings["storage"]), Curve(Console(stderr=True)))
    made.save(output, recipe.weights)
    print(f"{output}: a Llama of {made.model.num_parameters():,} weights, its curves in {settings['storage']}")


class Curve:
    """Prints a line for each record of a training, with the time that is left."""

    def __init__(self, console: Console) -> None:
        """Print to `console`."""
        self._console = console
        self._begun: tuple[float, float] | None = None

    def __call__(self, record: Record, steps: int) -> None:
        """Take a record; `steps` is the number of the last step."""
        if "texts" in record:
            self._console.print(_told(record), highlight=False)
            return
        step, now = record["step"], time.monotonic()
        first_step, first = self._begun = self._begun or (step, now)
        figures = [f"{name.replace('_', ' ')} {record[name]:.4g}" for name in _SHOWN if name in record]
        if not figures:
            return
        if first_step < step < steps:
            figures.append(f"{(now - first) / (step - first_step) * (steps - step) / 60:.0f} min left")
        self._console.print(" · ".join([f"step {step:,}/{steps:,}", *figures]), highlight=False)


def _told(record: Record) -> str:
    """How many texts there are, and how many are left out."""
    too_long = f", {record['left_out']:,.0f} left out as longer than recipe.max_tokens" if record["left_out"] else ""
    return f"{record['texts']:,.0f} texts{too_long}"


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
