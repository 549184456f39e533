"""A compressed and approximate index of very many nodes, which FAISS builds, stores and searches.

FAISS rotates each vector and keeps one bit per dimension (RaBitQ), in lists of similar vectors. Workers of a machine
share this index: it is mapped into memory. A search compares the query with the codes of the nearest lists, and ranks
the best candidates by their exact vectors, which are read from disk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from pipeline.retrieval.interface import Vectors
from pipeline.retrieval.node_files import Positions, StoredNodes, partial_file, write_json

QUERIES = 1000
"""Queries that the recall is measured with."""
TARGET = 0.975
"""The recall@1 that decides how many lists are searched."""

_CANDIDATES = 64
"""Candidates per query that are ranked by their exact vectors."""
_SAMPLES = 64
"""Vectors per list that the centres of the lists are computed from."""
_TIE = 1e-5
"""Scores with at most this difference can be equal."""


@dataclass(frozen=True, slots=True)
class Recall:
    """How many lists a search reads, and which share of the nearest nodes it finds, compared with exact search."""

    probes: int
    at_1: float
    at_10: float
    queries: int


class CompressedFiles:
    """The files of a compressed index, next to the exact vectors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.lock = folder / "lock"
        self.trained = folder / "trained.faiss"
        self.index = folder / "nodes.faiss"
        self.recall = folder / "recall.json"

    def part(self, number: int) -> Path:
        return self._folder / f"{number:05}.faiss"

    def measured(self) -> Recall | None:
        """Return the recall; None if the index is not finished."""
        return Recall(**orjson.loads(self.recall.read_bytes())) if self.recall.exists() else None


class CompressedIndex:
    """A finished index, for concurrent searches."""

    def __init__(self, nodes: StoredNodes, files: CompressedFiles, probes: int) -> None:
        """Map the index into memory; a search reads `probes` lists."""
        import faiss

        self._nodes = nodes
        self._index: Any = faiss.read_index(str(files.index), faiss.IO_FLAG_MMAP)
        faiss.extract_index_ivf(self._index).nprobe = probes

    def candidates(self, vectors: Vectors, k: int) -> Iterator[tuple[Vectors, Positions]]:
        """Yield scores and ascending positions of nodes near each vector.

        There are usually more than k nodes, and fewer if the lists are short.
        """
        _, found = self._index.search(np.ascontiguousarray(vectors, np.float32), max(_CANDIDATES, 2 * k))
        for vector, positions in zip(vectors, found, strict=True):
            existing = np.sort(positions[positions >= 0])
            # Unlike a matrix product, it gives equal rows equal scores.
            yield np.einsum("ij,j->i", self._nodes.rows(existing), vector), existing


def build(nodes: StoredNodes, files: CompressedFiles) -> None:
    """Write an index of all nodes. A build that was interrupted goes on with the shard where it stopped."""
    import faiss

    if files.index.exists():
        return
    if not files.trained.exists():
        _write(_trained(nodes), files.trained)
    parts = [files.part(number) for number in range(len(nodes.shards))]
    for part, (start, vectors) in zip(parts, nodes.blocks(), strict=True):
        if not part.exists():
            index = faiss.read_index(str(files.trained))
            index.add_with_ids(vectors, np.arange(start, start + len(vectors)))
            _write(index, part)
    index = faiss.read_index(str(files.trained))
    for part in parts:
        index.merge_from(faiss.read_index(str(part)))
    _write(index, files.index)
    for part in parts:
        part.unlink()


def measure(nodes: StoredNodes, files: CompressedFiles, queries: Vectors) -> Recall:
    """Choose how many lists a search reads, by its recall of the exact results of `queries`. Stores and returns it."""
    k = min(10, len(nodes))
    exact, _ = nearest(nodes, queries, k)
    lists = _lists(len(nodes))
    probes = max(1, lists // 256)
    while True:
        index = CompressedIndex(nodes, files, probes)
        found = np.stack([_best_scores(scores, k) for scores, _ in index.candidates(queries, k)])
        at_1 = float(np.mean(found[:, 0] >= exact[:, 0] - _TIE))
        if at_1 >= TARGET or probes == lists:
            break
        probes = min(probes + (probes + 1) // 2, lists)  # not twice as many: a search takes as long as it reads lists
    at_10 = float(np.mean(found >= exact[:, -1:] - _TIE))
    recall = Recall(probes, at_1, at_10, len(queries))
    write_json(files.recall, asdict(recall))
    return recall


def _best_scores(scores: Vectors, k: int) -> Vectors:
    """Return the k best scores, best first; -inf for those that are missing."""
    padded: Vectors = np.append(scores, np.full(k, -np.inf, np.float32))
    return np.sort(padded)[::-1][:k]


def nearest(nodes: StoredNodes, queries: Vectors, k: int) -> tuple[Vectors, Positions]:
    """Return the scores and positions of the k nearest nodes of each query by exact search, best first."""
    import faiss

    best: Any = faiss.ResultHeap(len(queries), k, keep_max=True)
    for start, vectors in nodes.blocks():
        scores, rows = faiss.knn(queries, vectors, min(k, len(vectors)), metric=faiss.METRIC_INNER_PRODUCT)
        best.add_result(scores, rows + start)
    best.finalize()
    return best.D, best.I


def _trained(nodes: StoredNodes) -> Any:
    import faiss

    lists = _lists(len(nodes))
    sample = np.linspace(0, len(nodes) - 1, min(len(nodes), _SAMPLES * lists)).astype(int)
    rows = nodes.rows(sample)
    index = faiss.index_factory(rows.shape[1], f"RR,IVF{lists},RaBitQ", faiss.METRIC_INNER_PRODUCT)
    index.train(rows)
    return index


def _lists(nodes: int) -> int:
    """Return the number of lists: a power of two near 4 √nodes, as FAISS advises, for enough samples per list."""
    return int(2 ** round(math.log2(max(1, min(4 * math.sqrt(nodes), nodes / _SAMPLES)))))


def _write(index: Any, file: Path) -> None:
    import faiss

    faiss.write_index(index, str(partial_file(file)))
    partial_file(file).replace(file)
