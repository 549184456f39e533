"""The Hydra sweeper `fused`: the basic sweeper of Hydra, without its own trial of each configuration.

The launcher `fused` composes each configuration with a better error and with a progress bar. Hydra finds sweepers only
in this namespace package.
"""

# No postponed annotations: Hydra runs plugins before Python registers them as modules, which dataclasses need.
from collections.abc import Sequence
from dataclasses import dataclass, field

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore


@dataclass
class FusedSweeperConf:
    """The keys of `hydra.sweeper` with `hydra/sweeper=fused`, which are those of the basic sweeper."""

    _target_: str = "hydra_plugins.kgqa_fused_sweeper.FusedSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] | None = field(default_factory=dict)  # of None, Hydra cannot set a key


class FusedSweeper(BasicSweeper):
    """Combines the listed values of all keys."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Accept every batch: the launcher composes it right away."""


ConfigStore.instance().store(group="hydra/sweeper", name="fused", node=FusedSweeperConf, provider="kgqa-pipeline")
