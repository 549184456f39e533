"""`kg=subgraph`: each question is asked against a graph of its own, such as RoG's (methods.md §8.1, §10.5).

A question's graph is a neighbourhood that was cut out for the dataset, which makes the task easier: its scores stand in
no table with those of another backend.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, Self, TypeVar

from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import UserError
from pipeline.kg.naming import find_mediators
from pipeline.kg.port import Batch, Hop, Neighbours, batch
from pipeline.kg.relation_filter import RelationFilter
from pipeline.kg.terms import Terms
from pipeline.kg.triple_index import TripleIndex
from pipeline.types import EntityId, Question, Relation, Triple

K = TypeVar("K")
V = TypeVar("V")


class QuestionGraphs(Protocol):
    """A dataset with a graph per question."""

    name: str
    split: str
    path: Path

    def triples(self) -> Iterator[Triple]:
        """The facts of all graphs, streamed."""
        ...

    def question_triples(self, question_id: str) -> Iterable[Triple]:
        """The facts of one question's graph; called from several threads."""
        ...


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class SubgraphGraph:
    """The graphs of a dataset's questions. The fields are described in `conf/kg/subgraph.yaml`."""

    dataset: Any
    opaque_ids: str = r"[mg]\."
    keep_literals: bool = True
    keep_user: bool = False
    keep_notable_types: bool = False
    open_graphs: PositiveInt = 64

    def __post_init__(self) -> None:
        if not hasattr(self.dataset, "question_triples"):
            name = getattr(self.dataset, "name", self.dataset)
            raise UserError(f"kg=subgraph needs a dataset with a graph per question (dataset=rog), which {name} is not")
        self._dataset: QuestionGraphs = self.dataset
        self._open: OrderedDict[str, QuestionGraph] = OrderedDict()
        self._vocabulary: list[str] | None = None

    async def __aenter__(self) -> Self:
        self.fingerprint: str = await asyncio.to_thread(_content_hash, self._dataset)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._open.clear()

    def for_question(self, question: Question) -> QuestionGraph:
        """The question's own graph, read at its first lookup; those used last stay in memory."""
        if question.id not in self._open:
            self._open[question.id] = QuestionGraph(f"{self.fingerprint}/{question.id}", lambda: self._index(question))
            if len(self._open) > self.open_graphs:
                self._open.popitem(last=False)
        self._open.move_to_end(question.id)
        return self._open[question.id]

    async def vocabulary(self) -> list[str]:
        """All relation names of all graphs after the filter; reads the whole dataset, once."""
        if self._vocabulary is None:
            self._vocabulary = await asyncio.to_thread(self._read_vocabulary)
        return self._vocabulary

    async def relations(self, *_: object) -> NoReturn:
        """Raises UserError, as do all lookups that belong to no question."""
        raise UserError("kg=subgraph has no graph outside a question; use kg=embedded for the union of its graphs")

    neighbours = labels = mediators = find_by_name = types = relations

    def _index(self, question: Question) -> TripleIndex:
        return TripleIndex(
            self._dataset.question_triples(question.id),
            terms=Terms(opaque_ids=self.opaque_ids),
            shown=self._filter,
            keep_literals=self.keep_literals,
        )

    def _read_vocabulary(self) -> list[str]:
        return sorted(filter(self._filter.keeps, {triple.relation for triple in self._dataset.triples()}))

    @property
    def _filter(self) -> RelationFilter:
        return RelationFilter(self.keep_user, self.keep_notable_types)


class QuestionGraph:
    """One question's graph, read in a thread when it is first asked."""

    def __init__(self, fingerprint: str, read: Callable[[], TripleIndex]) -> None:
        """Nothing is read yet."""
        self.fingerprint = fingerprint
        self._read = read
        self._reading: asyncio.Task[TripleIndex] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    def for_question(self, question: Question) -> Self:
        return self

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        """Distinct relations at each entity, both directions, after the relation filter (§8.4)."""
        return _each((await self._index()).relations, ids)

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        """The first `limit` nodes that each hop leads to."""
        index = await self._index()
        return _each(lambda hop: index.neighbours(hop, limit), hops)

    async def labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]:
        """The name of each entity by the order of §8.5; a node that is a name carries itself."""
        return _each((await self._index()).label, ids)

    async def mediators(self, ids: Sequence[EntityId]) -> Batch[EntityId, bool]:
        """Whether each entity is a mediator by the rule of §8.5."""
        index = await self._index()
        return await find_mediators(self, ids, index.terms, index.mediator_types())

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        """At most `limit` entities that carry exactly each name."""
        index = await self._index()
        return _each(lambda name: index.find_by_name(name, limit), names)

    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        """The types of each entity."""
        return _each((await self._index()).types, ids)

    async def vocabulary(self) -> list[str]:
        """All relation names of this graph after the filter."""
        return (await self._index()).vocabulary()

    async def _index(self) -> TripleIndex:
        if self._reading is None:
            self._reading = asyncio.create_task(asyncio.to_thread(self._read))
        # Shielded: a question that gives up must not take the graph from the same question at another point.
        return await asyncio.shield(self._reading)


def _each(look_up: Callable[[K], V], arguments: Sequence[K]) -> Batch[K, V]:
    answers = {argument: look_up(argument) for argument in arguments}
    return batch(answers, queries=1 if answers else 0)


def _content_hash(dataset: QuestionGraphs) -> str:
    """What the files of the split hold, wherever they lie."""
    path, name = dataset.path, f"*{dataset.split}*.parquet"
    files = [path] if path.is_file() else sorted(path.glob(name)) or sorted(path.glob(f"data/{name}"))
    content = hashlib.blake2b(digest_size=8)
    for file in files:
        with file.open("rb") as stream:
            content.update(hashlib.file_digest(stream, "sha256").digest())
    return content.hexdigest()
