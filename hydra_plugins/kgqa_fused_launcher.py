"""The Hydra launcher `fused`: runs each batch of a sweeper's configurations as one run (`pipeline.engine.sweep`).

Hydra finds launchers only in this namespace package.
"""

# No postponed annotations: Hydra runs plugins before Python registers them as modules, which dataclasses need.
from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class FusedLauncherConf:
    """The keys of `hydra.launcher` with `hydra/launcher=fused`."""

    _target_: str = "hydra_plugins.kgqa_fused_launcher.FusedLauncher"
    objective: str = "hits_at_1"
    """The score that a searching sweeper optimises, by its column in the traces."""


class FusedLauncher(Launcher):
    """Runs batches of configurations on a `Sweep`: the task function if it is one, or else its own."""

    def __init__(self, objective: str) -> None:
        self._objective = objective

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from pipeline.engine.sweep import Sweep  # Hydra imports all plugins for each of its commands

        self._sweep: Sweep = task_function if isinstance(task_function, Sweep) else Sweep()
        self._sweep.is_search = not config.hydra.sweeper._target_.endswith(("FusedSweeper", "BasicSweeper"))
        self._common = [word for word in config.hydra.overrides.hydra if word.startswith("hydra.searchpath")]

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """Run one batch, and return the objective of each of its configurations to the sweeper of a search."""
        summaries = self._sweep.run([[*self._common, *overrides] for overrides in job_overrides])
        scores = [summary.score(self._objective) if self._sweep.is_search else None for summary in summaries]
        return [
            JobReturn(overrides=overrides, status=JobStatus.COMPLETED, _return_value=score)
            for overrides, score in zip(job_overrides, scores, strict=True)
        ]


ConfigStore.instance().store(group="hydra/launcher", name="fused", node=FusedLauncherConf, provider="kgqa-pipeline")
