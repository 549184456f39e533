"""Recall, speed and memory of the compressed node index, and the flat search beside it.

The vectors are synthetic. They resemble those of names under all-MiniLM-L6-v2, measured on the 63,000 entities of
MetaQA and of a part of Freebase: the spectrum of their covariance, the similarity of random pairs and of nearest
neighbours, and the share of the lists that a search must read. Recall depends on the vectors: on others it differs.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from pipeline.kg.interface import Batch, batch
from pipeline.retrieval.compressed import nearest
from pipeline.retrieval.interface import Vectors
from pipeline.retrieval.node_files import SHARD_NODES, NodeFiles
from pipeline.retrieval.nodes import NodeIndex
from pipeline.types import EntityId

T = TypeVar("T")

DIMENSIONS = 384
_BATCH = 64
_QUERIES = 1024
_K = 10
_GROUP = 64
"""Nodes whose vectors are made together: their random numbers have one seed."""


def search(nodes: int = 3 * SHARD_NODES) -> dict[str, float]:
    """Recall, milliseconds per query and memory of the approximate search over 790,000 nodes, against flat search."""
    with tempfile.TemporaryDirectory(prefix="kgqa-search-") as scratch:
        folder = Path(scratch)
        began = time.perf_counter()
        kept, repeated = _build_with_kills(folder, nodes)
        build_s = time.perf_counter() - began
        found, approximate_ms, peak_mib = _in_new_process(_approximate, folder, nodes)
        expected, flat_ms, _ = _in_new_process(_flat, folder)
    hits = [len(set(some) & set(others)) for some, others in zip(found, expected, strict=True)]
    first = [some[0] == others[0] for some, others in zip(found, expected, strict=True)]
    return {
        "nodes": nodes,
        "build_s": build_s,
        "shards_kept_after_kill": kept,
        "shards_written_again": repeated,
        "recall_at_1": statistics.mean(first),
        "recall_at_10": statistics.mean(hits) / _K,
        "ms_per_query": approximate_ms,
        "flat_ms_per_query": flat_ms,
        "flat_to_approximate": flat_ms / approximate_ms,
        "peak_memory_mib": peak_mib,
        "vectors_mib": nodes * DIMENSIONS * 4 / 2**20,
    }


def search_large() -> dict[str, float]:
    """The same over 5,000,000 nodes, which takes 9 GB of disk space and half an hour."""
    return search(5_000_000)


class SyntheticNodes:
    """A graph whose nodes have numbers as ids, and an encoder of their texts.

    A text is a number and a word. A text of a number alone is a query, whose nearest node is usually that one.
    """

    name = "synthetic"
    fingerprint = "synthetic"

    def __init__(self, nodes: int) -> None:
        random = np.random.default_rng(0)
        variances = np.arange(1, DIMENSIONS + 1) ** -0.72
        rotation, _ = np.linalg.qr(random.standard_normal((DIMENSIONS, DIMENSIONS)))
        self._basis = (rotation * np.sqrt(variances / variances.sum())).T.astype(np.float32)
        self._mean = _unit(random.standard_normal(DIMENSIONS, np.float32))
        self._topics = random.standard_normal((max(1, nodes // 1000), DIMENSIONS), np.float32)
        self._nodes = nodes

    def text_nodes(self, *, labelled: bool = False) -> Iterator[tuple[EntityId, str]]:
        """Yield all nodes."""
        return ((str(number), f"{number} node") for number in range(self._nodes))

    async def texts(self, ids: Sequence[EntityId], *, labelled: bool = False) -> Batch[EntityId, str | None]:
        """Return the text of each node."""
        return batch({id: f"{id} node" for id in ids})

    async def features(self, ids: Sequence[EntityId]) -> Batch[EntityId, None]:
        """Return nothing."""
        return batch(dict.fromkeys(ids))

    degrees = features

    async def encode(self, texts: Sequence[str]) -> Vectors:
        """Return unit vectors, shape (texts, DIMENSIONS)."""
        numbers = [int(text.split()[0]) for text in texts]
        groups = {group: self._group(group) for group in {number // _GROUP for number in numbers}}
        latent = np.stack([groups[number // _GROUP][number % _GROUP] for number in numbers])
        vectors = _unit(0.4 * self._mean + np.float32(0.84**0.5) * (latent @ self._basis))
        queries = [place for place, text in enumerate(texts) if text.isdigit()]
        for place in queries:
            random = np.random.default_rng([1, numbers[place]])
            noise = _unit(random.standard_normal(DIMENSIONS, np.float32) @ self._basis)
            vectors[place] = _unit(vectors[place] + np.float32(np.tan(np.arccos(random.uniform(0.5, 0.95)))) * noise)
        return vectors

    def _group(self, group: int) -> Vectors:
        """Return the latent vectors of nodes of one topic, in families of very different sizes and densities."""
        random = np.random.default_rng([0, group])
        families = random.standard_normal((16, DIMENSIONS), np.float32)
        of_node = (16 * random.random(_GROUP) ** 2).astype(int)
        spread = np.exp(random.normal(np.log(0.75), 0.5, (_GROUP, 1))).astype(np.float32)
        own = random.standard_normal((_GROUP, DIMENSIONS), np.float32)
        topic = self._topics[group % len(self._topics)]
        latent: Vectors = (0.8 * topic + 0.7 * families[of_node] + spread * own) / np.sqrt(0.64 + 0.49 + spread**2)
        return latent.astype(np.float32)


def _unit(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return unit


class _Queries(SyntheticNodes):
    """Returns stored vectors of queries, so that the memory and the time of making them do not count."""

    def __init__(self, nodes: int, file: Path) -> None:
        super().__init__(nodes)
        self._file = file

    async def encode(self, texts: Sequence[str]) -> Vectors:
        if not all(text.isdigit() for text in texts):
            return await super().encode(texts)
        stored = np.load(self._file, mmap_mode="r")
        return np.stack([stored[int(text)] for text in texts])


def _index(folder: Path, nodes: int) -> NodeIndex:
    graph = _Queries(nodes, folder / "queries.npy")
    return NodeIndex(graph, graph, exact_up_to=0, cache_dir=folder)  # type: ignore[arg-type]


def _build(folder: Path, nodes: int) -> None:
    world = SyntheticNodes(nodes)
    index = NodeIndex(world, world, exact_up_to=0, cache_dir=folder)  # type: ignore[arg-type]
    asyncio.run(index.search("0", 1))
    # Other nodes than those that the index is measured with when it is built.
    numbers = np.random.default_rng(2).choice(nodes, min(_QUERIES, nodes), replace=False)
    np.save(folder / "queries.npy", asyncio.run(world.encode([str(number) for number in numbers])))


def _build_with_kills(folder: Path, nodes: int) -> tuple[int, int]:
    """Build the index; kill the process when half of the vectors, and again when half of the lists are written.

    Returns the number of shards that were finished before a kill, and how many of them were written again.
    """
    shards = -(-nodes // SHARD_NODES)
    kept: dict[Path, int] = {}
    for pattern in ("*/*.ids.npy", "*/0*.faiss"):
        process = multiprocessing.get_context("spawn").Process(target=_build, args=(folder, nodes))
        process.start()
        while process.is_alive() and len(list(folder.glob(pattern))) < (shards + 1) // 2:
            time.sleep(0.05)
        process.kill()
        process.join()
        kept |= {file: file.stat().st_mtime_ns for file in folder.glob(pattern)}
    _in_new_process(_build, folder, nodes)
    again = [file for file, written in kept.items() if file.exists() and file.stat().st_mtime_ns != written]
    return len(kept), len(again)


def _approximate(folder: Path, nodes: int) -> tuple[list[list[int]], float, float]:
    """Search in batches. Returns the numbers of the nodes found, ms per query, and the peak memory of this process."""
    return asyncio.run(_search_concurrently(_index(folder, nodes), nodes))


async def _search_concurrently(index: NodeIndex, nodes: int) -> tuple[list[list[int]], float, float]:
    found: list[list[int]] = []
    times = []
    for start in range(0, min(_QUERIES, nodes), _BATCH):
        began = time.perf_counter()
        queries = range(start, min(start + _BATCH, nodes))
        answers = await asyncio.gather(*(index.search(str(query), _K) for query in queries))
        times.append((time.perf_counter() - began) / len(answers))
        found += [[int(id) for id in ids] for ids in answers]
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found, 1000 * statistics.median(times), peak_mib


def _flat(folder: Path) -> tuple[list[list[int]], float, float]:
    """Compare each query with all vectors, in batches. Returns what `_approximate` does."""
    (stored,) = folder.glob("nodes-*")
    opened = NodeFiles(stored).open()
    queries = np.load(folder / "queries.npy")
    found: list[list[int]] = []
    times = []
    for start in range(0, len(queries), _BATCH):
        began = time.perf_counter()
        _, positions = nearest(opened, queries[start : start + _BATCH], _K)
        times.append((time.perf_counter() - began) / len(positions))
        found += positions.tolist()
    return found, 1000 * statistics.median(times), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _in_new_process(work: Callable[..., T], *arguments: object) -> T:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()
