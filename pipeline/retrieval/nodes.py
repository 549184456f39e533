"""The node index: search over the texts of a graph's nodes, as `RetrieveNode` of GRBench does (methods.md §6.2).

One vector per node, a flat inner-product index over them. Vectors are encoded once per (graph, encoder), as a stream,
and kept on disk; what searches them is FAISS where it is installed, on a GPU where its GPU build finds one.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
import orjson

from pipeline.kg.port import AttributedGraph, Batch
from pipeline.retrieval.lru import Lru
from pipeline.retrieval.port import Encoder, Vectors
from pipeline.retrieval.ranking import best
from pipeline.retrieval.stored import are_current
from pipeline.types import EntityId

_CHUNK = 4096
"""Nodes that are encoded and written at a time."""
_REMEMBERED = 10_000
_TIED = 16
"""Candidates beyond k that FAISS is asked for at first, so that ties are ordered here and not there."""
_TIE = 2e-5
"""Scores no further apart may be ties once they are rounded."""
_MOST = 2048
"""Rows that an index on a GPU can return."""


class SearchableGraph(AttributedGraph, Protocol):
    """A graph whose nodes can be searched by text."""

    async def labels(self, ids: list[EntityId]) -> Batch[EntityId, str | None]: ...


class NodeIndex:
    """Finds the nodes of one graph whose text is like a query. Built, or read from disk, by the first search."""

    def __init__(self, kg: SearchableGraph, encoder: Encoder, *, cache_dir: Path | None = None) -> None:
        """Nothing is read or encoded yet. `cache_dir` keeps the vectors for later runs; None builds them anew."""
        self._kg = kg
        self._encoder = encoder
        self._cache_dir = cache_dir
        self._built: _Built | None = None
        self._building = asyncio.Lock()
        self._found: Lru[tuple[str, int], list[EntityId]] = Lru(_REMEMBERED)

    async def search(self, query: str, k: int) -> list[EntityId]:
        """At most k node ids, the best first, ties in the graph's own order."""
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
        async with _alone(files.lock):
            if not await self._are_current(files):
                await self._encode(files)
        return await asyncio.to_thread(_open, *files.load())

    async def _are_current(self, files: _Files) -> bool:
        """Whether the files hold what the encoder makes of the graph today, tried on three nodes."""
        try:
            ids, vectors = files.load()
        except (OSError, ValueError):
            return False
        if not ids:
            return True
        places = sorted({0, len(ids) // 2, len(ids) - 1})
        texts = await self._kg.labels([ids[place] for place in places])
        probes = [texts[ids[place]] or "" for place in places]
        return await are_current(np.array(vectors[places]), self._encoder, probes)

    async def _encode(self, files: _Files) -> None:
        """Write the vectors of all nodes beside each other; the ids come last, and make them valid."""
        nodes = self._kg.text_nodes()
        with files.beside(files.vectors).open("wb") as vectors, files.beside(files.ids).open("wb") as ids:
            while chunk := await asyncio.to_thread(lambda: list(islice(nodes, _CHUNK))):
                rows = await self._encoder.encode([text for _, text in chunk])
                vectors.write(np.ascontiguousarray(rows, np.float32).tobytes())
                ids.writelines(orjson.dumps(id) + b"\n" for id, _ in chunk)
        files.commit()


@dataclass(frozen=True, slots=True)
class _Files:
    """Where an index is kept: raw float32 vectors, and their ids, one JSON string per line."""

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

    def beside(self, path: Path) -> Path:
        return path.with_name(f".{path.name}.{os.getpid()}")

    def commit(self) -> None:
        for path in (self.vectors, self.ids):
            self.beside(path).replace(path)

    def load(self) -> tuple[list[EntityId], Vectors]:
        """Raises OSError or ValueError when the files are missing or do not fit each other."""
        ids = [orjson.loads(line) for line in self.ids.read_bytes().splitlines()]
        if not ids:
            return [], np.empty((0, 0), np.float32)
        return ids, np.memmap(self.vectors, np.float32, mode="r").reshape(len(ids), -1)


class _Flat(Protocol):
    def candidates(self, vector: Vectors, k: int) -> tuple[Vectors, Any]:
        """Scores and positions of at least the k best rows."""
        ...


@dataclass(frozen=True, slots=True)
class _Built:
    ids: list[EntityId]
    index: _Flat

    def search(self, vector: Vectors, k: int) -> list[EntityId]:
        if not self.ids:
            return []
        scores, places = self.index.candidates(vector, min(k, len(self.ids)))
        in_order = np.argsort(places)
        return [self.ids[places[in_order[place]]] for place in best(scores[in_order], k)]


class _Matrix:
    """The index without FAISS: one product with the matrix."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = np.array(vectors)

    def candidates(self, vector: Vectors, k: int) -> tuple[Vectors, Any]:
        return self._vectors @ vector, np.arange(len(self._vectors))


class _Faiss:
    """A flat inner-product index; on the first GPU when FAISS was built for GPUs and there is one."""

    def __init__(self, faiss: Any, vectors: Vectors) -> None:
        index = faiss.IndexFlatIP(vectors.shape[1])
        if hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0:
            self._resources = faiss.StandardGpuResources()  # has to live as long as the index
            index = faiss.index_cpu_to_gpu(self._resources, 0, index)
        for start in range(0, len(vectors), _CHUNK):
            index.add(np.ascontiguousarray(vectors[start : start + _CHUNK]))
        self._index = index

    def candidates(self, vector: Vectors, k: int) -> tuple[Vectors, Any]:
        """The k best rows and all that tie with the last of them, which FAISS may return in any order."""
        query = np.ascontiguousarray(vector, np.float32).reshape(1, -1)
        most = max(k, min(self._index.ntotal, _MOST))
        wanted = min(k + _TIED, most)
        while True:
            scores, places = (rows[0] for rows in self._index.search(query, wanted))
            if wanted == most or scores[-1] < scores[k - 1] - _TIE:
                return scores, places
            wanted = min(4 * wanted, most)


def _open(ids: list[EntityId], vectors: Vectors) -> _Built:
    try:
        import faiss
    except ImportError:
        return _Built(ids, _Matrix(vectors))
    return _Built(ids, _Faiss(faiss, vectors) if ids else _Matrix(vectors))


@asynccontextmanager
async def _alone(file: Path) -> AsyncIterator[None]:
    """Hold a lock file: of several processes that search a graph for the first time, one encodes it."""
    with file.open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        yield
