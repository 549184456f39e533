"""The steps that a question waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

_COLUMNS = {
    "step": pl.Int32,
    "kind": pl.String,
    "role": pl.String,
    "start_s": pl.Float64,
    "own_s": pl.Float64,
    "shared": pl.Boolean,
}
_ROUNDING = 2**-22
"""How much the times of a trace, which have 24 bits, may be off: a step begins at the end of the one before it."""


def critical_path(steps: Sequence[Mapping[str, Any]], indices: Sequence[int] | None) -> pl.DataFrame:
    """Return the longest sequence of calls and lookups, each of which follows the one before it: those of `indices`.

    Without indices, as in runs of version 0.1.0, a step follows another one if it began after the other one had ended.
    Steps whose `own_s` is not known count as 0 seconds.
    """
    path = _by_times(steps) if indices is None else [steps[index] for index in indices]
    rows = [(step["index"], *(step[name] for name in list(_COLUMNS)[1:])) for step in path]
    return pl.DataFrame(rows, _COLUMNS, orient="row")


def _by_times(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    waits = [step for step in steps if step["kind"] != "decision"]
    by_end = sorted(waits, key=lambda step: (step["start_s"] + step["duration_s"], step["index"]))
    longest: dict[int, tuple[float, Mapping[str, Any] | None]] = {}
    best: tuple[float, Mapping[str, Any] | None] = (0.0, None)  # of the sequences that have ended
    ended = 0
    for step in waits:
        while ended < len(by_end) and _ends_before(by_end[ended], step) and by_end[ended]["index"] in longest:
            best = max(best, (longest[by_end[ended]["index"]][0], by_end[ended]), key=lambda pair: pair[0])
            ended += 1
        longest[step["index"]] = (best[0] + (step["own_s"] or 0.0), best[1])
    last = max(waits, key=lambda step: longest[step["index"]][0], default=None)
    path: list[Mapping[str, Any]] = []
    while last is not None:
        path.append(last)
        last = longest[last["index"]][1]
    return path[::-1]


def _ends_before(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(one["start_s"] + one["duration_s"] <= other["start_s"] * (1 + _ROUNDING))
