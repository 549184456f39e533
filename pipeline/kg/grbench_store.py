"""Builds and reads an id-indexed SQLite store of one GRBench graph (specification §10.6)."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from pipeline.datasets.grbench_file import GraphNode, node_text, read_nodes
from pipeline.errors import UserError
from pipeline.kg.empty_graph import empty_graph
from pipeline.kg.interface import Hop, Neighbours
from pipeline.types import Direction, EntityId, Relation

_FORMAT = 1
"""Stores of another format are rebuilt."""

TextOf: TypeAlias = Callable[[str, dict[str, Any]], str | None]
"""Makes the text of a node from its type and features."""

_ENDS: dict[Direction, tuple[str, str]] = {"out": ("head", "tail"), "in": ("tail", "head")}
"""Per direction, the columns of the start node and of the nodes that the hop leads to."""


def open_store(graph: Path, file: Path) -> Store:
    """Open the store of a graph file; build it first if it is missing or older. Raises UserError.

    If several processes need to build it at the same time, one builds and the others wait.
    """
    if not _is_store_of(graph, file):
        with _build_lock(file):
            if not _is_store_of(graph, file):
                build_store(graph, file)
    return Store(file)


class Store:
    """Read-only access to a store, for one thread. The lookups are those of `KnowledgeGraph`, for one argument."""

    def __init__(self, file: Path) -> None:
        self._db = _connect(file)
        self.fingerprint: str = self._db.execute("SELECT fingerprint FROM origin").fetchone()[0]
        self.edge_types: dict[str, int] = {name: n for n, name in self._db.execute("SELECT n, name FROM edge_type")}

    def close(self) -> None:
        self._db.close()

    def relations(self, id: EntityId) -> list[Relation]:
        # One query per edge type and direction, independent of the number of edges: a hub costs no more than a leaf.
        return sorted(
            Relation(name, direction)
            for name, n in self.edge_types.items()
            for direction, (here, _) in _ENDS.items()
            if self._all(f"SELECT 1 FROM edge WHERE {here} = ? AND type = ? LIMIT 1", id, n)  # noqa: S608
        )

    def neighbours(self, hop: Hop, limit: int) -> Neighbours:
        id, (name, direction) = hop
        here, there = _ENDS[direction]
        query = f"SELECT DISTINCT {there} FROM edge WHERE {here} = ? AND type = ? ORDER BY {there} LIMIT ?"  # noqa: S608
        nodes = tuple(node for (node,) in self._all(query, id, self.edge_types.get(name), limit + 1))
        return Neighbours(nodes[:limit], truncated=len(nodes) > limit)

    def label(self, id: EntityId) -> str | None:
        return self.text(id, node_text)

    def text(self, id: EntityId, text_of: TextOf) -> str | None:
        rows = self._all("SELECT type, features FROM node WHERE id = ?", id)
        return next((text_of(node_type, json.loads(features)) for node_type, features in rows), None)

    def is_mediator(self, id: EntityId) -> bool:
        return self.label(id) is None and bool(self._all("SELECT 1 FROM edge WHERE head = ? LIMIT 1", id))

    def find_by_name(self, name: str, limit: int) -> list[EntityId]:
        rows = self._all("SELECT id FROM node WHERE text_hash = ? ORDER BY id", _hash(name))
        return [id for (id,) in rows if self.label(id) == name][:limit]

    def types(self, id: EntityId) -> list[str]:
        return [node_type for (node_type,) in self._all("SELECT type FROM node WHERE id = ?", id)]

    def features(self, id: EntityId) -> dict[str, Any] | None:
        rows = self._all("SELECT features FROM node WHERE id = ?", id)
        return next((json.loads(features) for (features,) in rows), None)

    def degrees(self, id: EntityId) -> dict[str, int] | None:
        rows = self._all("SELECT degrees FROM node WHERE id = ?", id)
        return next((json.loads(degrees) for (degrees,) in rows), None)

    def text_nodes(self, text_of: TextOf) -> Iterator[tuple[EntityId, str]]:
        for id, node_type, features in self._db.execute("SELECT id, type, features FROM node ORDER BY rowid"):
            if (text := text_of(node_type, json.loads(features))) is not None:
                yield id, text

    def _all(self, query: str, *arguments: str | int | None) -> list[Any]:
        try:
            return self._db.execute(query, arguments).fetchall()
        except UnicodeEncodeError:
            return []  # Half of a surrogate pair in a model's text. No id of a graph contains one.


def build_store(graph: Path, file: Path) -> None:
    """Stream a graph file into a new store. After an error there is no new store.

    Memory use is constant: rows are appended in the order of the file, and SQLite sorts them on disk. Raises UserError
    for a malformed file and for a duplicate id.
    """
    partial = file.with_name(f"{file.name}.partial-{os.getpid()}")
    try:
        with closing(sqlite3.connect(partial, isolation_level=None)) as db:
            db.executescript(_TABLES)
            db.execute("BEGIN")
            edge_types: dict[str, int] = {}
            content = hashlib.sha256()
            for node in read_nodes(graph):
                content.update(repr(node).encode())
                _insert(db, node, edge_types)
            if db.execute("SELECT 1 FROM node LIMIT 1").fetchone() is None:
                raise empty_graph(f"{graph}")
            db.executemany("INSERT INTO edge_type VALUES (?, ?)", ((n, name) for name, n in edge_types.items()))
            db.execute("INSERT INTO origin VALUES (?, ?, ?)", (_FORMAT, _stamp(graph), content.hexdigest()[:16]))
            db.execute("COMMIT")
            _refuse_duplicates(db, graph)
            db.executescript(_INDEXES)
        partial.replace(file)
    except (sqlite3.OperationalError, OSError) as error:
        raise _unwritable(file, error) from None
    finally:
        partial.unlink(missing_ok=True)


_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA temp_store = FILE;
CREATE TABLE origin (format INTEGER, stamp TEXT, fingerprint TEXT);
CREATE TABLE edge_type (n INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE node (id TEXT, type TEXT, features TEXT, degrees TEXT, text_hash INTEGER);
CREATE TABLE edge (head TEXT, type INTEGER, tail TEXT);
"""

_INDEXES = """
CREATE UNIQUE INDEX node_by_id ON node (id);
CREATE INDEX node_by_text ON node (text_hash, id);
CREATE INDEX edge_out ON edge (head, type, tail);
CREATE INDEX edge_in ON edge (tail, type, head);
"""


def _insert(db: sqlite3.Connection, node: GraphNode, edge_types: dict[str, int]) -> None:
    features = json.dumps(node.features, ensure_ascii=False)
    degrees = json.dumps({edge_type: len(targets) for edge_type, targets in node.neighbors.items()})
    text_hash = None if node.text is None else _hash(node.text)
    db.execute("INSERT INTO node VALUES (?, ?, ?, ?, ?)", (node.id, node.type, features, degrees, text_hash))
    for edge_type, targets in node.neighbors.items():
        n = edge_types.setdefault(edge_type, len(edge_types))
        db.executemany("INSERT INTO edge VALUES (?, ?, ?)", ((node.id, n, target) for target in targets))


def _refuse_duplicates(db: sqlite3.Connection, graph: Path) -> None:
    duplicate = db.execute(
        "SELECT id, min(type), max(type) FROM node GROUP BY id HAVING count(*) > 1 LIMIT 1"
    ).fetchone()
    if duplicate:
        id, *types = duplicate
        raise UserError(
            f"{graph}: the id {id!r} occurs twice ({' and '.join(types)}); ids must be unique across all node types"
        )


def _unwritable(file: Path, error: Exception) -> UserError:
    return UserError(f"the store {file} cannot be written ({error}); choose a writable path with kg.store=")


def _hash(text: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big", signed=True
    )


def _stamp(graph: Path) -> str:
    stat = graph.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _connect(file: Path) -> sqlite3.Connection:
    # `immutable` avoids locks: a store is never changed, only replaced by a new file.
    return sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)


def _is_store_of(graph: Path, file: Path) -> bool:
    """Return whether `file` is a store of the current version of the graph file."""
    if not file.is_file():
        return False
    try:
        with closing(_connect(file)) as db:
            origin = db.execute("SELECT format, stamp FROM origin").fetchone()
    except sqlite3.DatabaseError:
        return False
    return bool(origin == (_FORMAT, _stamp(graph)))


@contextmanager
def _build_lock(file: Path) -> Iterator[None]:
    """Hold the lock file next to `file`, so that only one process builds the store."""
    try:
        lock = file.with_name(f"{file.name}.lock").open("w")
    except OSError as error:
        raise _unwritable(file, error) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
