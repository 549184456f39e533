"""A sweep: points that a sweeper asks for, in one batch or in several, each batch run as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from pipeline import config
from pipeline.engine.run import Point, execute, run_dir
from pipeline.errors import UserError
from pipeline.evaluation.summary import PointSummary
from pipeline.traces.folder import RunFolder


class Sweep:
    """The batches so far. Those after the first lie inside its run folder, and reuse the calls of all before them."""

    def __init__(self, console: Console | None = None) -> None:
        """`console` shows the progress of each batch."""
        self._console = console or Console(stderr=True)
        self.batches: list[tuple[RunFolder, list[PointSummary]]] = []
        """Each with its run folder, in the order in which they were asked for."""

    def __call__(self, composed: object) -> None:
        """Stands where Hydra wants a task: what is run is never a single point."""
        raise UserError("a sweep needs hydra/launcher=fused: other launchers run one point at a time")

    def run(self, batch: Sequence[Sequence[str]]) -> list[PointSummary]:
        """Run the points that these overrides describe. Raises UserError naming what is wrong with one."""
        points = [Point(tuple(overrides), self.in_place(config.compose(overrides))) for overrides in batch]
        for resolved in {config.canonical(point.config): point.config for point in points}.values():
            config.check(resolved)
        summaries = execute(points, self._console)
        self.batches.append((RunFolder(run_dir(points)), summaries))
        return summaries

    def in_place(self, resolved: dict[str, Any]) -> dict[str, Any]:
        """A point as it is run: where, and with which calls at hand."""
        if not self.batches:
            return resolved
        earlier = [folder.path for folder, _ in self.batches]
        run, place = resolved["run"], earlier[0] / f"batch-{len(earlier):03d}"
        return {**resolved, "run": {**run, "dir": str(place), "reuse": [*run["reuse"], *map(str, earlier)]}}
