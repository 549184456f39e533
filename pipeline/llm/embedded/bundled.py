"""The Llama that is part of the package, and what it was trained for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.text import load_yaml

BUNDLED_MODEL = Path(__file__).resolve().parents[2] / "bundled_model"
"""The folder of the model."""


class Training(NamedTuple):
    """What the bundled model was trained for."""

    methods: Mapping[str, Mapping[str, Any]]
    """Beginnings of the roles of their prompts, and the keys of each method in training."""
    datasets: list[str]
    """Beginnings of their names."""
    max_new_tokens: int
    """The most tokens of a reply."""
    max_new_tokens_elsewhere: int
    """The most tokens of a reply for another method or dataset."""

    def covers(self, method: str, dataset: str) -> bool:
        """Whether the model was trained for a method on a dataset."""
        return method in self.methods and dataset.startswith(tuple(self.datasets))

    def differing(self, method: str, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys of a method that had another value in training than in `keys`, without `depth`."""
        trained = self.methods[method]
        return {key: value for key, value in trained.items() if key != "depth" and keys.get(key, value) != value}


def reply_cap(model: str | None, max_new_tokens: int | None, method: str, dataset: str) -> int | None:
    """Return the most tokens of a reply of `llm=embedded` to a method on a dataset; None leaves it to the method.

    `model` is None for the bundled model, and `max_new_tokens` is None for its own limit.
    """
    if max_new_tokens is not None or model is not None:
        return max_new_tokens
    trained = training()
    return trained.max_new_tokens if trained.covers(method, dataset) else trained.max_new_tokens_elsewhere


@cache
def training() -> Training:
    """Read what the bundled model was trained for."""
    return Training(**load_yaml((BUNDLED_MODEL / "trained_for.yaml").read_text(encoding="utf-8")))
