"""Texts of several collections put together, of some only a part."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from pipeline.datasets.files import lines
from pipeline.traces.place import writing


@dataclass(frozen=True)
class Part:
    """A file of training texts, JSON Lines, and how much of it is taken."""

    file: Path
    shares: Mapping[str, float]
    """The share of its rows by the beginning of their `role`, the longest that fits; the empty one fits all."""


def write_mixture(parts: Sequence[Part], output: Path) -> Counter[str]:
    """Write the rows that are taken, and give their number by role; rows without one are ArG's.

    Which rows are taken is decided by a hash of each, so the same collections give the same mixture, and a larger share
    holds all of a smaller one. Raises UserError for a part that cannot be read, and StorageError.
    """
    taken: Counter[str] = Counter()
    with writing(output) as file:
        for role, row in _rows(parts):
            file.write(row)
            taken[role] += 1
    return taken


def _rows(parts: Sequence[Part]) -> Iterator[tuple[str, bytes]]:
    for part in parts:
        for _, line in lines(part.file):
            role, row = str(orjson.loads(line).get("role", "")), line + b"\n"
            if zlib.crc32(row) / 2**32 < _share(role, part.shares):
                yield role or "arg", row


def _share(role: str, shares: Mapping[str, float]) -> float:
    fitting = [beginning for beginning in shares if role.startswith(beginning)]
    return shares[max(fitting, key=len)] if fitting else 0.0
