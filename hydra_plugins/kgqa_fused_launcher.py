"""The Hydra launcher `fused`: all points that a sweeper asks for at once are one run (`pipeline.engine.sweep`).

Hydra finds launchers in this namespace package only.
"""

# No postponed annotations: Hydra runs plugins before Python knows them as modules, which dataclasses then look for.
from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class FusedLauncherConf:
    """`hydra.launcher`, once `hydra/launcher=fused` is chosen."""

    _target_: str = "hydra_plugins.kgqa_fused_launcher.FusedLauncher"
    objective: str = "hits_at_1"
    """The score of a point that a searching sweeper is told, by its column in the traces."""


class FusedLauncher(Launcher):
    """Runs batches of points on a `Sweep`: the one that is the task function, or else one of its own."""

    def __init__(self, objective: str) -> None:
        self._objective = objective

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from pipeline.engine.sweep import Sweep  # Hydra imports all plugins for each of its commands

        self._sweep: Sweep = task_function if isinstance(task_function, Sweep) else Sweep()
        self._common = [word for word in config.hydra.overrides.hydra if word.startswith("hydra.searchpath")]

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """Run one batch and tell the sweeper the objective of each of its points."""
        summaries = self._sweep.run([[*self._common, *overrides] for overrides in job_overrides])
        return [
            JobReturn(overrides=overrides, status=JobStatus.COMPLETED, _return_value=summary.score(self._objective))
            for overrides, summary in zip(job_overrides, summaries, strict=True)
        ]


ConfigStore.instance().store(group="hydra/launcher", name="fused", node=FusedLauncherConf, provider="kgqa-pipeline")
