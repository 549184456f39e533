"""Where answers are lost: the stage, the step and the reason of every wrong question (`find`), and tables of them."""

from pipeline.analysis.losses.frames import (
    TRACE_COLUMNS,
    add_groups,
    clusters,
    flips,
    loss_rows,
    loss_shares,
    scan_losses,
    selecting_configurations,
)
from pipeline.analysis.losses.stage_names import (
    REASON_MEANINGS,
    REASON_TEXTS,
    REASONS,
    STAGE_TEXTS,
    STAGES,
    Loss,
)
from pipeline.analysis.losses.stage_rules import LOSS_COLUMNS, find_loss
from pipeline.analysis.losses.waiting import critical_path

__all__ = [
    "LOSS_COLUMNS",
    "REASONS",
    "REASON_MEANINGS",
    "REASON_TEXTS",
    "STAGES",
    "STAGE_TEXTS",
    "TRACE_COLUMNS",
    "Loss",
    "add_groups",
    "clusters",
    "critical_path",
    "find_loss",
    "flips",
    "loss_rows",
    "loss_shares",
    "scan_losses",
    "selecting_configurations",
]
