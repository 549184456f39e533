"""Searches the nodes of a graph by their texts, as `RetrieveNode` of GRBench does (specification §6.2).

The index is a flat inner-product index with one vector per node. The vectors of each graph and encoder are computed
once and stored on disk. FAISS searches them if it is installed, on a GPU if it supports one.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeAlias

import numpy as np
import orjson

from pipeline.kg.interface import AttributedGraph, Batch
from pipeline.kg.lru import Lru
from pipeline.retrieval.interface import Encoder, Vectors
from pipeline.retrieval.ranking import best
from pipeline.retrieval.stored import are_current
from pipeline.types import EntityId

_CHUNK = 4096
"""Nodes per batch of encoding and writing."""
_CACHED_SEARCHES = 10_000
_EXTRA = 16
"""Results beyond k that FAISS is asked for at first, because it returns ties in any order."""
_TIE = 2e-5
"""Scores with at most this difference can be ties after rounding."""
_MAX_RESULTS = 2048
"""Largest number of results of an index on a GPU."""


class SearchableGraph(AttributedGraph, Protocol):
    """A graph whose nodes can be searched by text."""

    async def labels(self, ids: list[EntityId]) -> Batch[EntityId, str | None]: ...


class NodeIndex:
    """Search over the node texts of one graph. The first search builds the index or reads it from disk."""

    def __init__(self, kg: SearchableGraph, encoder: Encoder, *, cache_dir: Path | None = None) -> None:
        """Describe the index; nothing is read yet. Vectors are stored in `cache_dir`; None does not store them."""
        self._kg = kg
        self._encoder = encoder
        self._cache_dir = cache_dir
        self._built: _Built | None = None
        self._building = asyncio.Lock()
        self._found: Lru[tuple[str, int], list[EntityId]] = Lru(_CACHED_SEARCHES)

    async def search(self, query: str, k: int) -> list[EntityId]:
        """Return at most k node ids, best first, ties in the order of the graph."""
        if (found := self._found.get((query, k))) is None:
            built = await self._index()
            vector = (await self._encoder.encode([query]))[0]
            found = await asyncio.to_thread(built.search, vector, k)
            self._found.put((query, k), found)
        return found

    async def _index(self) -> _Built:
        async with self._building:
            if self._built is None:
                self._built = await (self._stored() if self._cache_dir else self._in_memory())
        return self._built

    async def _in_memory(self) -> _Built:
        with TemporaryDirectory(prefix="kgqa-nodes-") as folder:
            files = _Files(Path(folder), "nodes")
            await self._encode(files)
            return await asyncio.to_thread(_open, *files.load())

    async def _stored(self) -> _Built:
        assert self._cache_dir is not None
        key = hashlib.blake2b(f"{self._kg.fingerprint}\0{self._encoder.name}".encode(), digest_size=12).hexdigest()
        files = _Files(self._cache_dir.expanduser(), f"nodes-{key}")
        files.folder.mkdir(parents=True, exist_ok=True)
        async with _build_lock(files.lock):
            if not await self._are_current(files):
                await self._encode(files)
        return await asyncio.to_thread(_open, *files.load())

    async def _are_current(self, files: _Files) -> bool:
        """Return whether the files match the graph and the encoder. Checks three nodes."""
        try:
            ids, vectors = files.load()
        except (OSError, ValueError):
            return False
        if not ids:
            return True
        positions = sorted({0, len(ids) // 2, len(ids) - 1})
        texts = await self._kg.labels([ids[at] for at in positions])
        sample = [texts[ids[at]] or "" for at in positions]
        return await are_current(np.array(vectors[positions]), self._encoder, sample)

    async def _encode(self, files: _Files) -> None:
        """Write the vectors and the ids of all nodes. The ids are renamed last, which makes the files valid."""
        nodes = self._kg.text_nodes()
        with files.temporary(files.vectors).open("wb") as vectors, files.temporary(files.ids).open("wb") as ids:
            while chunk := await asyncio.to_thread(lambda: list(islice(nodes, _CHUNK))):
                rows = await self._encoder.encode([text for _, text in chunk])
                vectors.write(np.ascontiguousarray(rows, np.float32).tobytes())
                ids.writelines(orjson.dumps(id) + b"\n" for id, _ in chunk)
        files.commit()


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of an index: raw float32 vectors, and their ids as one JSON string per line."""

    folder: Path
    name: str

    @property
    def vectors(self) -> Path:
        return self.folder / f"{self.name}.f32"

    @property
    def ids(self) -> Path:
        return self.folder / f"{self.name}.ids"

    @property
    def lock(self) -> Path:
        return self.folder / f"{self.name}.lock"

    def temporary(self, path: Path) -> Path:
        return path.with_name(f".{path.name}.{os.getpid()}")

    def commit(self) -> None:
        for path in (self.vectors, self.ids):
            self.temporary(path).replace(path)

    def load(self) -> tuple[list[EntityId], Vectors]:
        """Return ids and vectors. Raises OSError or ValueError if files are missing or do not match."""
        ids = [orjson.loads(line) for line in self.ids.read_bytes().splitlines()]
        if not ids:
            return [], np.empty((0, 0), np.float32)
        return ids, np.memmap(self.vectors, np.float32, mode="r").reshape(len(ids), -1)


_Candidates: TypeAlias = Callable[[Vectors, int], tuple[Vectors, Any]]
"""Returns the scores and positions of at least the k rows nearest to a vector."""


@dataclass(frozen=True, slots=True)
class _Built:
    ids: list[EntityId]
    candidates: _Candidates

    def search(self, vector: Vectors, k: int) -> list[EntityId]:
        if not self.ids:
            return []
        scores, places = self.candidates(vector, min(k, len(self.ids)))
        in_order = np.argsort(places)
        return [self.ids[places[in_order[place]]] for place in best(scores[in_order], k)]


class _Faiss:
    """A flat inner-product index, on the first GPU if there is one and FAISS supports it."""

    def __init__(self, faiss: Any, vectors: Vectors) -> None:
        index = faiss.IndexFlatIP(vectors.shape[1])
        if hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0:
            self._resources = faiss.StandardGpuResources()  # must live as long as the index
            index = faiss.index_cpu_to_gpu(self._resources, 0, index)
        for start in range(0, len(vectors), _CHUNK):
            index.add(np.ascontiguousarray(vectors[start : start + _CHUNK]))
        self._index = index

    def candidates(self, vector: Vectors, k: int) -> tuple[Vectors, Any]:
        """Return the k best rows and all ties with the last one, which FAISS returns in any order."""
        query = np.ascontiguousarray(vector, np.float32).reshape(1, -1)
        most = max(k, min(self._index.ntotal, _MAX_RESULTS))
        wanted = min(k + _EXTRA, most)
        while True:
            scores, places = (rows[0] for rows in self._index.search(query, wanted))
            if wanted == most or scores[-1] < scores[k - 1] - _TIE:
                return scores, places
            wanted = min(4 * wanted, most)


def _open(ids: list[EntityId], vectors: Vectors) -> _Built:
    if ids and find_spec("faiss"):
        import faiss

        return _Built(ids, _Faiss(faiss, vectors).candidates)
    matrix = np.array(vectors)
    return _Built(ids, lambda vector, _: (matrix @ vector, np.arange(len(matrix))))


@asynccontextmanager
async def _build_lock(file: Path) -> AsyncIterator[None]:
    """Hold a lock file, so that only one process encodes the graph."""
    with file.open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        yield
