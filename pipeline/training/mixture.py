"""Mixes the training texts of several collections, taking a share of each."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from pipeline.datasets.files import lines
from pipeline.traces.storage import writing


@dataclass(frozen=True)
class Part:
    """A JSON Lines file of training texts, and the shares to take from it."""

    file: Path
    shares: Mapping[str, float]
    """Prefix of `role` → the share of rows to take. The longest matching prefix applies; the empty one matches all."""


def write_mixture(parts: Sequence[Part], output: Path, held_out: Collection[str] = ()) -> Counter[str]:
    """Write the selected rows and return their number by role; rows without a role count as `arg`.

    Rows of the questions whose ids are `held_out` are left out. A row is taken depending on its hash. So the same
    collections give the same mixture, and a larger share contains a smaller one. Raises UserError for a part that
    cannot be read, and StorageError.
    """
    taken: Counter[str] = Counter()
    with writing(output) as file:
        for role, row in _selected_rows(parts, held_out):
            file.write(row)
            taken[role] += 1
    return taken


def _selected_rows(parts: Sequence[Part], held_out: Collection[str]) -> Iterator[tuple[str, bytes]]:
    for part in parts:
        for _, line in lines(part.file):
            fields = orjson.loads(line)
            role, row = str(fields.get("role", "")), line + b"\n"
            if (id := fields.get("id")) is not None and str(id) in held_out:
                continue
            if zlib.crc32(row) / 2**32 < _share(role, part.shares):
                yield role or "arg", row


def _share(role: str, shares: Mapping[str, float]) -> float:
    prefixes = [prefix for prefix in shares if role.startswith(prefix)]
    return shares[max(prefixes, key=len)] if prefixes else 0.0
