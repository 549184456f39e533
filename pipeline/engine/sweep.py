"""A sweep: points that a sweeper asks for, in one batch or in several, each batch run as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from pipeline.engine.run import Point, compose_points, execute, run_dir
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
        points = [self.in_place(point) for point in compose_points(batch, self._console)]
        summaries = execute(points, self._console)
        self.batches.append((RunFolder(run_dir(points)), summaries))
        return summaries

    def in_place(self, point: Point) -> Point:
        """A point as it is run: where, and with which calls at hand."""
        if not self.batches:
            return point
        earlier = [folder.path for folder, _ in self.batches]
        run, place = point.config["run"], earlier[0] / f"batch-{len(earlier):03d}"
        run = {**run, "dir": str(place), "reuse": [*run["reuse"], *map(str, earlier)]}
        return replace(point, config={**point.config, "run": run})
