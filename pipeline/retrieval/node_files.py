"""The stored vectors and ids of a graph's nodes, in shards that several processes can write together."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from pipeline.retrieval.interface import Encoder, Vectors
from pipeline.types import EntityId

SHARD_NODES = 262_144
"""Nodes per shard. A process that is killed loses at most the shard that it was writing."""
_CHUNK = 4096
"""Nodes per batch of encoding."""

Positions = npt.NDArray[np.integer[Any]]


class Shard:
    """Two files in the format of numpy: the vectors, and the ids as JSON strings. The ids are renamed last."""

    def __init__(self, folder: Path, number: int) -> None:
        self.vectors = folder / f"{number:05}.vectors.npy"
        self.ids = folder / f"{number:05}.ids.npy"
        self.lock = folder / f"{number:05}.lock"

    async def write(self, nodes: Sequence[tuple[EntityId, str]], encoder: Encoder) -> None:
        """Encode the texts of (id, text) pairs and write both files."""
        first = await encoder.encode([text for _, text in nodes[:_CHUNK]])
        partial = partial_file(self.vectors)
        vectors: Any = np.lib.format.open_memmap(partial, "w+", np.float32, (len(nodes), first.shape[1]))  # type: ignore[no-untyped-call]
        vectors[: len(first)] = first
        for start in range(len(first), len(nodes), _CHUNK):
            chunk = nodes[start : start + _CHUNK]
            vectors[start : start + len(chunk)] = await encoder.encode([text for _, text in chunk])
        vectors.flush()
        with partial_file(self.ids).open("wb") as file:
            np.save(file, np.array([orjson.dumps(id) for id, _ in nodes]))
        partial.replace(self.vectors)
        partial_file(self.ids).replace(self.ids)


class StoredNodes:
    """The nodes of an index. Vectors and ids stay on disk; a position is that of a node in the order of the graph."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        """Open the shards. Raises OSError, EOFError or ValueError if a file is missing or damaged."""
        self.shards: list[Vectors] = [np.load(shard.vectors, mmap_mode="r") for shard in shards]
        """The memory-mapped vectors of each shard, shape (nodes, dimensions)."""
        self._ids = [np.load(shard.ids, mmap_mode="r") for shard in shards]
        self._files = [shard.vectors.open("rb") for shard in shards]
        sizes = [len(vectors) for vectors in self.shards]
        if sizes != [len(ids) for ids in self._ids]:
            raise ValueError("the files of a shard have different lengths")
        self._starts = np.cumsum([0, *sizes])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def blocks(self) -> Iterator[tuple[int, Vectors]]:
        """Yield the position of the first node and the vectors of each shard."""
        yield from zip(self._starts.tolist(), self.shards, strict=False)

    def id(self, position: int) -> EntityId:
        """Return the id of the node at a position."""
        number, row = self._place(position)
        id: EntityId = orjson.loads(bytes(self._ids[number][row]))
        return id

    def rows(self, positions: Sequence[int] | Positions) -> Vectors:
        """Return the vectors at some positions, shape (positions, dimensions).

        They are read from the file, because the pages of a memory-mapped file count as memory of the process.
        """
        rows: Vectors = np.empty((len(positions), self.shards[0].shape[1]), np.float32)
        for place, position in enumerate(positions):
            rows[place] = self._row(int(position))
        return rows

    def _row(self, position: int) -> Vectors:
        number, row = self._place(position)
        vectors: Any = self.shards[number]
        size = vectors.strides[0]
        return np.frombuffer(os.pread(self._files[number].fileno(), size, vectors.offset + row * size), np.float32)

    def _place(self, position: int) -> tuple[int, int]:
        number = int(np.searchsorted(self._starts, position, side="right")) - 1
        return number, position - int(self._starts[number])


class NodeFiles:
    """The folder of one index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = folder / "lock"
        self.count = folder / "nodes.json"
        """A JSON file with the number of nodes. It exists as soon as all shards are written."""

    def open(self) -> StoredNodes:
        """Open the shards that are written. Raises OSError, EOFError or ValueError for damaged and missing files."""
        nodes = StoredNodes([Shard(self.folder, int(file.name[:5])) for file in sorted(self.folder.glob("*.ids.npy"))])
        if self.count.exists() and orjson.loads(self.count.read_bytes()) != len(nodes):
            raise ValueError("a shard is missing")
        return nodes

    def clear(self) -> None:
        """Remove all files but the locks, which other processes may hold."""
        for file in self.folder.iterdir():
            if file != self.lock and file.suffix != ".lock":
                file.unlink()


@asynccontextmanager
async def locked(file: Path, *, wait: bool = True) -> AsyncIterator[bool]:
    """Hold a lock file, which the system releases when the process ends; yields False if it is taken."""
    with file.open("w") as lock:
        try:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def partial_file(file: Path) -> Path:
    """Return the name of a file while it is written."""
    return file.with_name(f".{file.name}.partial")


def write_json(file: Path, content: object) -> None:
    """Write a JSON file atomically."""
    partial_file(file).write_bytes(orjson.dumps(content))
    partial_file(file).replace(file)
