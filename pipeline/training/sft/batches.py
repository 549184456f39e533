"""Collates encoded texts into batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline.training.sft.prefix_packing import IGNORED, attention_mask

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True)
class Collator:
    """Pads the texts of a batch to one length and builds the attention mask."""

    padding: int
    """The padding token."""
    branching: bool
    """Items may be packed prefix trees, whose tokens do not attend to all tokens before them."""
    row_tokens: int | None = None
    """The length of every text, in tokens. The batch then has `ends` in place of the mask, for `block_mask`. None pads
    to the longest text."""
    texts: int | None = None
    """The number of texts of every batch: an incomplete one is filled with empty texts, which have no loss. None leaves
    it incomplete."""

    def __call__(self, items: Sequence[dict[str, np.ndarray]]) -> dict[str, Tensor]:
        """Return the arguments of a model that computes a loss.

        Shapes are [texts, tokens]; the attention mask of packed trees is [texts, 1, tokens, tokens].
        """
        import torch

        length = self.row_tokens or max(len(item["input_ids"]) for item in items)
        if self.texts is not None:
            empty = {name: column[:0] for name, column in items[0].items()}
            items = [*items, *[empty] * (self.texts - len(items))]
        labels = _padded(items, "labels", length, IGNORED)
        arrays = {
            "input_ids": _padded(items, "input_ids", length, self.padding),
            "position_ids": _padded(items, "position_ids", length, 0),
            **self._mask(items, length),
            "labels": labels,
            "shift_labels": labels,  # labels are already shifted by one
        }
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _mask(self, items: Sequence[dict[str, np.ndarray]], length: int) -> dict[str, np.ndarray]:
        if not self.branching:
            return {"attention_mask": np.arange(length) < np.array([[len(item["input_ids"])] for item in items])}
        ends = _padded(items, "ends", length, length)
        if self.row_tokens is not None:
            return {"ends": ends}
        return {"attention_mask": np.stack([attention_mask(each) for each in ends])[:, None]}


def block_mask(ends: Tensor) -> BlockMask:
    """Return the attention mask of packed trees for FlexAttention, which skips blocks of tokens that see nothing.

    `ends` has the shape [texts, tokens] (`pack_prefixes`). The mask is made on its device, so a GPU need not wait for a
    mask of [tokens, tokens] that the CPU makes.
    """
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    def sees(text: Tensor, _: Tensor, attending: Tensor, attended: Tensor) -> Tensor:
        return (attended <= attending) & (attending < ends[text, attended])

    make = torch.compile(create_block_mask) if ends.is_cuda else create_block_mask
    texts, tokens = ends.shape
    return make(sees, texts, None, tokens, tokens, device=ends.device)


def _padded(items: Sequence[dict[str, np.ndarray]], column: str, longest: int, padding: int) -> np.ndarray:
    rows = [np.pad(item[column], (0, longest - len(item[column])), constant_values=padding) for item in items]
    return np.stack(rows).astype(np.int64)
