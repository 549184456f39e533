"""Where answers are lost: the stage, the step and the reason of every wrong question (`find`), and tables of them."""

from pipeline.analysis.losses.find import LOSS_COLUMNS, find_loss
from pipeline.analysis.losses.frames import ROW_COLUMNS, flips, loss_shares, scan_losses
from pipeline.analysis.losses.stages import REASONS, STAGES, Loss, Reason, Stage

__all__ = [
    "LOSS_COLUMNS",
    "REASONS",
    "ROW_COLUMNS",
    "STAGES",
    "Loss",
    "Reason",
    "Stage",
    "find_loss",
    "flips",
    "loss_shares",
    "scan_losses",
]
