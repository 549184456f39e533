"""Searches the nodes of a graph by their texts, as `RetrieveNode` of GRBench does (specification §6.2).

The vectors of each graph and encoder are computed once and stored on disk, in shards that all workers write together.
A flat inner-product index compares a query with all of them. FAISS searches it if it is installed, on a GPU if it
supports one. Above a number of nodes, the index is compressed and approximate.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np

from pipeline.kg.batch_loader import BatchLoader
from pipeline.kg.interface import AttributedGraph, Batch, batch
from pipeline.retrieval import compressed
from pipeline.retrieval.compressed import CompressedFiles, CompressedIndex, Recall
from pipeline.retrieval.interface import Encoder, Vectors
from pipeline.retrieval.node_files import SHARD_NODES, NodeFiles, Positions, Shard, StoredNodes, locked, write_json
from pipeline.retrieval.ranking import best
from pipeline.retrieval.stored import are_current
from pipeline.types import EntityId

_CHUNK = 4096
"""Vectors that are copied at a time."""
_BATCH_WINDOW_S = 0.003
"""Seconds that the first query of a batch waits for others."""
_BATCH_SIZE = 64
"""Queries per search of the index."""
_CACHED_SEARCHES = 10_000
_EXTRA = 16
"""Results beyond k that FAISS is asked for at first, because it returns ties in any order."""
_TIE = 2e-5
"""Scores with at most this difference can be ties after rounding."""
_MAX_RESULTS = 2048
"""Largest number of results of an index on a GPU."""


class NodeIndex:
    """Search over the node texts of one graph. The first search builds the index or reads it from disk."""

    def __init__(
        self,
        kg: AttributedGraph,
        encoder: Encoder,
        *,
        exact_up_to: int,
        cache_dir: Path | None = None,
        labelled: bool = False,
    ) -> None:
        """Describe the index; nothing is read yet.

        Args:
            kg: the graph.
            encoder: encodes the texts of nodes, and queries.
            exact_up_to: the number of nodes above which the index is compressed and approximate, if FAISS is installed.
            cache_dir: the folder that stores the index; None does not store it.
            labelled: whether the texts are those with the names of features.
        """
        self._kg = kg
        self._encoder = encoder
        self._exact_up_to = exact_up_to
        self._cache_dir = cache_dir
        self._labelled = labelled
        self._opened: tuple[StoredNodes, _Index] | None = None
        self._opening = asyncio.Lock()
        self._found: BatchLoader[tuple[str, int], list[EntityId]] = BatchLoader(
            self._fetch, batch_size=_BATCH_SIZE, window_s=_BATCH_WINDOW_S, cache_size=_CACHED_SEARCHES
        )

    async def search(self, query: str, k: int) -> list[EntityId]:
        """Return at most k node ids, best first, ties in the order of the graph."""
        return (await self._found([(query, k)]))[query, k]

    def stored(self) -> tuple[int, Recall | None] | None:
        """Return the number of stored nodes, and the recall of an approximate index; None if the index is not stored.

        Raises OSError or ValueError if files are damaged.
        """
        files = self._files()
        if files is None or not files.count.exists():
            return None
        nodes = len(files.open())
        approximate = self._is_approximate(nodes)
        recall = CompressedFiles(files.folder).measured() if approximate else None
        return None if approximate and recall is None else (nodes, recall)

    async def _fetch(self, searches: Sequence[tuple[str, int]]) -> Batch[tuple[str, int], list[EntityId]]:
        async with self._opening:
            nodes, index = self._opened = self._opened or await self._open()
        vectors = await self._encoder.encode([query for query, _ in searches])
        found = await asyncio.to_thread(_search, nodes, index, vectors, [k for _, k in searches])
        return batch(dict(zip(searches, found, strict=True)), queries=1)

    async def _open(self) -> tuple[StoredNodes, _Index]:
        if files := self._files():
            files.folder.mkdir(parents=True, exist_ok=True)
            return await self._built(files)
        with TemporaryDirectory(prefix="kgqa-nodes-") as folder:
            return await self._built(NodeFiles(Path(folder)))  # Files that are open can be read after their removal.

    def _files(self) -> NodeFiles | None:
        if self._cache_dir is None:
            return None
        identity = (self._kg.fingerprint, self._encoder.name, *(["labelled"] if self._labelled else []))
        key = hashlib.blake2b("\0".join(identity).encode(), digest_size=12).hexdigest()
        return NodeFiles(self._cache_dir.expanduser() / f"nodes-{key}")

    def _is_approximate(self, nodes: int) -> bool:
        return nodes > self._exact_up_to and find_spec("faiss") is not None

    async def _built(self, files: NodeFiles) -> tuple[StoredNodes, _Index]:
        """Complete the files of the index, and open it."""
        async with locked(files.lock):
            if not await self._are_current(files):
                files.clear()
        if not files.count.exists():
            await self._encode(files)
        nodes = files.open()
        if not self._is_approximate(len(nodes)):
            return nodes, await asyncio.to_thread(_flat, nodes)
        compressed_files = CompressedFiles(files.folder)
        recall = await self._compress(nodes, compressed_files)
        return nodes, await asyncio.to_thread(CompressedIndex, nodes, compressed_files, recall.probes)

    async def _are_current(self, files: NodeFiles) -> bool:
        """Return whether the shards that exist match the graph and the encoder. Checks three nodes."""
        try:
            nodes = files.open()
        except (OSError, EOFError, ValueError):
            return False
        if not nodes:
            return True
        positions = sorted({0, len(nodes) // 2, len(nodes) - 1})
        return await are_current(nodes.rows(positions), self._encoder, await self._texts(nodes, positions))

    async def _texts(self, nodes: StoredNodes, positions: Iterable[int]) -> list[str]:
        ids = [nodes.id(position) for position in positions]
        texts = await self._kg.texts(ids, labelled=self._labelled)
        return [texts[id] or "" for id in ids]

    async def _encode(self, files: NodeFiles) -> None:
        """Write the shards that no other process has written or is writing. Then wait for those of other processes."""
        total, taken = await self._encode_shards(files, wait=False)
        if taken:
            await self._encode_shards(files, wait=True)
        write_json(files.count, total)

    async def _encode_shards(self, files: NodeFiles, *, wait: bool) -> tuple[int, int]:
        """Return the number of nodes, and the number of shards that other processes have locked."""
        texts = self._kg.text_nodes(labelled=self._labelled)
        total = taken = 0
        for number in count():
            nodes = await asyncio.to_thread(lambda: list(islice(texts, SHARD_NODES)))
            if not nodes:
                break
            total += len(nodes)
            shard = Shard(files.folder, number)
            if not shard.ids.exists():
                async with locked(shard.lock, wait=wait) as held:
                    taken += not held
                    if held and not shard.ids.exists():
                        await shard.write(nodes, self._encoder)
        return total, taken

    async def _compress(self, nodes: StoredNodes, files: CompressedFiles) -> Recall:
        """Build the compressed index and measure its recall, unless another process has done so."""
        async with locked(files.lock):
            recall = files.measured()
            if recall is None:
                await asyncio.to_thread(compressed.build, nodes, files)
                positions = np.linspace(0, len(nodes) - 1, min(len(nodes), compressed.QUERIES)).astype(int).tolist()
                queries = [_shortened(text) for text in await self._texts(nodes, positions)]
                recall = await asyncio.to_thread(compressed.measure, nodes, files, await self._encoder.encode(queries))
        return recall


class _Faiss:
    """A flat inner-product index, on the first GPU if there is one and FAISS supports it."""

    def __init__(self, nodes: StoredNodes) -> None:
        import faiss

        index: Any = faiss.IndexFlatIP(nodes.shards[0].shape[1])
        if hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0:
            self._resources = faiss.StandardGpuResources()  # must live as long as the index
            index = faiss.index_cpu_to_gpu(self._resources, 0, index)
        for vectors in nodes.shards:
            for start in range(0, len(vectors), _CHUNK):
                index.add(np.ascontiguousarray(vectors[start : start + _CHUNK]))
        self._index = index

    def candidates(self, vectors: Vectors, k: int) -> Iterable[tuple[Vectors, Positions]]:
        """Yield the k best nodes and all ties with the last one, which FAISS returns in any order.

        Each vector is a search of its own: as a batch, FAISS rounds equal scores differently.
        """
        return (self._nearest(np.ascontiguousarray(vector, np.float32).reshape(1, -1), k) for vector in vectors)

    def _nearest(self, query: Vectors, k: int) -> tuple[Vectors, Positions]:
        most = max(k, min(self._index.ntotal, _MAX_RESULTS))
        wanted = min(k + _EXTRA, most)
        while True:
            scores, places = (rows[0] for rows in self._index.search(query, wanted))
            if wanted == most or scores[-1] < scores[k - 1] - _TIE:
                return scores, places
            wanted = min(4 * wanted, most)


class _Matrix:
    """All vectors as a matrix: the search without FAISS."""

    def __init__(self, nodes: StoredNodes) -> None:
        self._matrix = np.concatenate(nodes.shards) if nodes else np.empty((0, 0), np.float32)

    def candidates(self, vectors: Vectors, k: int) -> Iterable[tuple[Vectors, Positions]]:
        """Yield all nodes."""
        return ((self._matrix @ vector, np.arange(len(self._matrix))) for vector in vectors)


_Index: TypeAlias = _Faiss | _Matrix | CompressedIndex
"""Finds candidates: scores and positions for each vector, of the k nearest nodes and of others in any order. There are
at least k nodes."""


def _flat(nodes: StoredNodes) -> _Index:
    return _Faiss(nodes) if nodes and find_spec("faiss") else _Matrix(nodes)


def _search(nodes: StoredNodes, index: _Index, vectors: Vectors, ks: Sequence[int]) -> list[list[EntityId]]:
    """Return the ids of the nearest nodes of each vector: for each one its own k."""
    if not nodes:
        return [[] for _ in ks]
    found = []
    for k, (scores, positions) in zip(ks, index.candidates(vectors, min(max(ks), len(nodes))), strict=True):
        in_order = np.argsort(positions)
        found.append([nodes.id(int(positions[in_order[place]])) for place in best(scores[in_order], k)])
    return found


def _shortened(text: str) -> str:
    """Return the first half of a text's words, or a single word without its last letter, as a query for its node."""
    words = text.split()
    return " ".join(words[: (len(words) + 1) // 2]) if len(words) > 1 else text[:-1]
