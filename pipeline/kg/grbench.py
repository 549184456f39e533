"""`kg=grbench`: a GRBench graph in an id-indexed SQLite store (specification §6.2, §10.6).

The store is built once from the official `graph.json` by streaming, and later opened read-only, so that a graph of
gigabytes needs little memory and opens fast. Edge types are the relations. An `in` hop leads to the nodes that list
this node as a neighbour. Ids that occur only as neighbours are kept; they have no name, type or features.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.datasets.grbench_file import find_graph, labelled_text, node_text
from pipeline.datasets.inverses import Inverses
from pipeline.datasets.remote import DataPath, local_copy
from pipeline.kg.grbench_store import Store, open_store
from pipeline.kg.interface import Batch, Hop, Neighbours, answer_each
from pipeline.types import EntityId, Question, Relation

T = TypeVar("T")


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class GRBenchGraph:
    """One domain of GRBench. The fields are described in `conf/kg/grbench.yaml`."""

    path: DataPath
    domain: str = ""
    store: Path | None

    async def __aenter__(self) -> Self:
        """Build the store if it is missing or older than the graph, and open it. Raises UserError."""
        # One thread owns the connection, so that the event loop never waits for the disk. Lookups are short.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grbench")
        self._store = await self._run(self._open)
        self.fingerprint: str = self._store.fingerprint
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._run(self._store.close)
        self._thread.shutdown()

    def for_question(self, question: Question) -> Self:
        return self

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        return await self._each(self._store.relations, ids)

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        return await self._each(lambda hop: self._store.neighbours(hop, limit), hops)

    async def labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]:
        """Look up the text of each node: its title or name, by the node's type."""
        return await self._each(self._store.label, ids)

    async def mediators(self, ids: Sequence[EntityId]) -> Batch[EntityId, bool]:
        """Look up whether each node is a mediator: it has no text, but it has neighbours (specification §8.5)."""
        return await self._each(self._store.is_mediator, ids)

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        return await self._each(lambda name: self._store.find_by_name(name, limit), names)

    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        """Look up the type of each node; an empty list for an id that is not a node."""
        return await self._each(self._store.types, ids)

    async def relation_names(self) -> list[str]:
        """Return all edge types, sorted."""
        return sorted(self._store.edge_types)

    async def inverses(self) -> Inverses:
        """Return nothing: GRBench declares no inverse edge types."""
        return {}

    async def features(self, ids: Sequence[EntityId]) -> Batch[EntityId, dict[str, Any] | None]:
        """Look up the features of each node; None for an id that is not a node. A feature that is NaN is None."""
        return await self._each(self._store.features, ids)

    async def degrees(self, ids: Sequence[EntityId]) -> Batch[EntityId, dict[str, int] | None]:
        return await self._each(self._store.degrees, ids)

    def text_nodes(self, *, labelled: bool = False) -> Iterator[tuple[EntityId, str]]:
        """Yield each node that has a text, in the order of the file. Blocks; has its own connection for any thread.

        With `labelled`, the text is all features that are searched, each with its name, else the one that names it.
        """
        with closing(self._open()) as store:
            yield from store.text_nodes(labelled_text if labelled else node_text)

    async def texts(self, ids: Sequence[EntityId], *, labelled: bool = False) -> Batch[EntityId, str | None]:
        """Look up the text of each node as `text_nodes` yields it."""
        text_of = labelled_text if labelled else node_text
        return await self._each(lambda node: self._store.text(node, text_of), ids)

    async def _each(self, look_up: Callable[[T], Any], arguments: Sequence[T]) -> Batch[T, Any]:
        return await self._run(lambda: answer_each(look_up, arguments))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> Store:
        graph = local_copy(find_graph(self.path, self.domain))
        return open_store(graph, self.store or graph.with_name(graph.name.removesuffix(".gz") + ".sqlite"))
