"""Texts put together as a model takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline.training.sft.trees import IGNORED, visible

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Collator:
    """Pads texts to the longest of a batch, and says what each of their tokens sees."""

    padding: int
    """The token that fills up."""
    branching: bool
    """Texts may be trees, whose tokens do not see all that stands before them."""

    def __call__(self, items: Sequence[dict[str, np.ndarray]]) -> dict[str, Tensor]:
        """The arguments of a model that computes a loss.

        Shapes are [texts, tokens], and that of a mask for trees [texts, 1, tokens, tokens].
        """
        import torch

        longest = max(len(item["input_ids"]) for item in items)
        labels = _padded(items, "labels", longest, IGNORED)
        arrays = {
            "input_ids": _padded(items, "input_ids", longest, self.padding),
            "position_ids": _padded(items, "position_ids", longest, 0),
            "attention_mask": self._mask(items, longest),
            "labels": labels,
            "shift_labels": labels,  # they stand already where their token is to be predicted
        }
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _mask(self, items: Sequence[dict[str, np.ndarray]], longest: int) -> np.ndarray:
        if self.branching:
            return np.stack([visible(ends) for ends in _padded(items, "ends", longest, longest)])[:, None]
        return np.arange(longest) < np.array([[len(item["input_ids"])] for item in items])


def _padded(items: Sequence[dict[str, np.ndarray]], column: str, longest: int, padding: int) -> np.ndarray:
    rows = [np.pad(item[column], (0, longest - len(item[column])), constant_values=padding) for item in items]
    return np.stack(rows).astype(np.int64)
