"""A sweep: the configurations that a sweeper requests, in one batch or in several. Each batch is one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.console import Console
from pipeline.engine.configuration import Configuration, compose_configurations, run_dir
from pipeline.engine.run import execute
from pipeline.errors import UserError
from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.traces.folder import BATCH, RunFolder


class Sweep:
    """Runs batches of configurations. Later batches lie in the run folder of the first and reuse all earlier calls."""

    def __init__(self, console: Console | None = None) -> None:
        """Take the console for the progress of each batch."""
        self._console = console or Console(stderr=True)
        self.batches: list[tuple[RunFolder, list[ConfigurationSummary]]] = []
        """The run folder and the summaries of each batch, in the order of the requests."""
        self.is_search = False
        """Whether the sweeper chooses later batches by the scores of earlier ones."""

    def __call__(self, composed: object) -> None:
        """Refuse to run as a Hydra task: other launchers would run one configuration at a time."""
        raise UserError("a sweep needs hydra/launcher=fused: other launchers run one configuration at a time")

    def run(self, batch: Sequence[Sequence[str]]) -> list[ConfigurationSummary]:
        """Run one batch, given as the overrides of each configuration. Raises UserError naming a wrong override."""
        return self.run_composed(compose_configurations(batch, self._console))

    def run_composed(self, batch: Sequence[Configuration]) -> list[ConfigurationSummary]:
        """Run one batch of composed configurations. Raises UserError."""
        configurations = list(map(self.prepare, batch))
        self.refuse(configurations)
        summaries = execute(configurations, self._console)
        self.batches.append((RunFolder(run_dir(configurations)), summaries))
        return summaries

    def refuse(self, configurations: Sequence[Configuration]) -> None:
        """Raise UserError if a batch must not be run because of what its run folder holds. A subclass may do so."""

    def prepare(self, configuration: Configuration) -> Configuration:
        """Return a configuration with the run folder of its batch, and the earlier batches to reuse."""
        if not self.batches:
            return configuration
        earlier = [folder.path for folder, _ in self.batches]
        run, path = configuration.config["run"], earlier[0] / f"{BATCH}{len(earlier):03d}"
        run = {**run, "dir": str(path), "reuse": [*run["reuse"], *map(str, earlier)]}
        config = {**configuration.config, "run": run}
        return replace(configuration, config=config, is_chosen_by_scores=self.is_search)
