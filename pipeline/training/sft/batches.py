"""Collates encoded texts into batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline.training.sft.prefix_packing import IGNORED, attention_mask

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Collator:
    """Pads texts to the longest one of a batch and builds the attention mask."""

    padding: int
    """The padding token."""
    branching: bool
    """Items may be packed prefix trees, whose tokens do not attend to all tokens before them."""

    def __call__(self, items: Sequence[dict[str, np.ndarray]]) -> dict[str, Tensor]:
        """Return the arguments of a model that computes a loss.

        Shapes are [texts, tokens]; the attention mask of packed trees is [texts, 1, tokens, tokens].
        """
        import torch

        longest = max(len(item["input_ids"]) for item in items)
        labels = _padded(items, "labels", longest, IGNORED)
        arrays = {
            "input_ids": _padded(items, "input_ids", longest, self.padding),
            "position_ids": _padded(items, "position_ids", longest, 0),
            "attention_mask": self._mask(items, longest),
            "labels": labels,
            "shift_labels": labels,  # labels are already shifted by one
        }
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _mask(self, items: Sequence[dict[str, np.ndarray]], longest: int) -> np.ndarray:
        if self.branching:
            return np.stack([attention_mask(ends) for ends in _padded(items, "ends", longest, longest)])[:, None]
        return np.arange(longest) < np.array([[len(item["input_ids"])] for item in items])


def _padded(items: Sequence[dict[str, np.ndarray]], column: str, longest: int, padding: int) -> np.ndarray:
    rows = [np.pad(item[column], (0, longest - len(item[column])), constant_values=padding) for item in items]
    return np.stack(rows).astype(np.int64)
