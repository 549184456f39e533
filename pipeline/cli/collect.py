"""Runs a collection of training data: a run whose method is the collection. Shared by the `kgqa collect` commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline import config
from pipeline.cli.arguments import Arguments
from pipeline.console import Console
from pipeline.engine.rejections import remarks
from pipeline.engine.run import Configuration, execute, run_dir
from pipeline.errors import UserError
from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.text import counted
from pipeline.traces.folder import RunFolder


class Collected(NamedTuple):
    """A finished collection."""

    folder: RunFolder
    summary: ConfigurationSummary
    output: Path
    """The file to write training data to."""
    rejected: int
    """Rows of the dataset that could not be read."""

    def notes(self, kind: str) -> list[str]:
        """Say which questions failed, which rows could not be read, and where the texts or rows (`kind`) are."""
        failed = self.summary.failed
        again = [f"{counted(failed, 'question')} failed: run.retry_failed=true runs them again"] if failed else []
        return [*again, *remarks(self.rejected, self.folder.rejected), f"{kind}: {self.output}"]


def nothing_collected(kind: str, questions: int, rejected: Counter[str]) -> UserError:
    """Return the error of a collection without a single text or row (`kind`), with the reasons by their numbers."""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in rejected.most_common())
    return UserError(f"none of {counted(questions, 'question')} gave a training {kind} ({reasons})")


def collect(arguments: Arguments) -> Collected:
    """Run or resume the collection that the overrides describe."""
    composed = arguments.compose()
    for section in ("material", "collect"):  # an error names the key under which the value was given
        config.build(section, composed)
    configuration = Configuration(tuple(arguments.overrides), _as_run(composed))
    (summary,) = execute([configuration], Console(stderr=True))
    folder = RunFolder(run_dir([configuration]))
    rejected = (folder.read_summary() or {})["rejected"]
    return Collected(folder, summary, Path(composed["output"]), rejected)


def _as_run(composed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run whose method is the collection, over solved questions."""
    own = {name: composed[name] for name in config.SECTIONS}
    material = {**composed["material"], "strict": composed["dataset"]["strict"]}
    choices = {**composed["choices"], "method": composed["collect"]["name"]}
    return {**own, "dataset": material, "method": composed["collect"], "choices": choices}
