"""Finds the GPU of this machine."""

from __future__ import annotations

from pipeline.errors import UserError


def require_gpu(needed_by: str) -> tuple[str, float]:
    """Return the name of the first GPU and its memory in GiB. Raises UserError if there is none."""
    import torch

    if not torch.cuda.is_available():
        raise UserError(f"{needed_by} needs an NVIDIA GPU, and torch {torch.__version__} finds none on this machine")
    found = torch.cuda.get_device_properties(0)
    return found.name, round(found.total_memory / 2**30, 1)
