"""`kg=subgraph`: each question has its own graph, as in RoG's datasets (specification §8.1, §10.5).

The graph is a neighbourhood that the dataset's authors extracted, which makes the task easier. Do not compare scores
with those of other backends.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, NoReturn, Protocol, Self

from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.datasets.interface import Dataset
from pipeline.datasets.inverses import Inverses
from pipeline.datasets.remote import AnyPath, glob, is_file, local_copy
from pipeline.errors import UserError
from pipeline.kg.interface import Batch, Hop, Neighbours, answer_each, batch
from pipeline.kg.labels import find_mediators
from pipeline.kg.lru import Lru
from pipeline.kg.relation_filter import RelationFilter
from pipeline.kg.triple_index import TripleIndex
from pipeline.kg.vocabulary import GraphVocabulary
from pipeline.rdf_terms import Terms
from pipeline.types import RUNTIME_ONLY, EntityId, Question, Relation, Triple


class QuestionGraphs(Dataset, Protocol):
    """A dataset with a graph per question."""

    @property
    def path(self) -> AnyPath:
        """The folder of its Parquet files, or one of them."""
        ...

    def question_triples(self, question_id: str) -> Iterable[Triple]:
        """Return the facts of one question's graph. Called from several threads."""
        ...


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class SubgraphGraph:
    """The graphs of a dataset's questions. The fields are described in `conf/kg/subgraph.yaml`."""

    dataset: Any
    vocabulary: GraphVocabulary
    keep_literals: bool
    keep_user: bool
    keep_notable_types: bool
    keep_inverses: bool
    open_graphs: Annotated[PositiveInt, RUNTIME_ONLY]

    def __post_init__(self) -> None:
        if not hasattr(self.dataset, "question_triples"):
            name = getattr(self.dataset, "name", self.dataset)
            raise UserError(
                f"kg=subgraph needs a dataset with a graph per question, such as dataset=rog; {name} has none"
            )
        self._dataset: QuestionGraphs = self.dataset
        self._open: Lru[str, QuestionGraph] = Lru(self.open_graphs)
        self._relation_names: list[str] | None = None

    async def __aenter__(self) -> Self:
        self.fingerprint: str = await asyncio.to_thread(_content_hash, self._dataset)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._open = Lru(self.open_graphs)

    def for_question(self, question: Question) -> QuestionGraph:
        """Return the question's graph, which is read at its first lookup. The graphs used last stay in memory."""
        if (graph := self._open.get(question.id)) is None:
            graph = QuestionGraph(
                f"{self.fingerprint}/{question.id}", self.vocabulary.terms, lambda: self._index(question)
            )
            self._open.put(question.id, graph)
        return graph

    async def relation_names(self) -> list[str]:
        """Return all relation names of all graphs after the filter. Reads the whole dataset once."""
        if self._relation_names is None:
            self._relation_names = await asyncio.to_thread(self._read_relation_names)
        return self._relation_names

    async def relations(self, *_: object) -> NoReturn:
        """Raise UserError, as all lookups without a question do."""
        raise UserError("kg=subgraph has no graph outside a question; use kg=embedded for the union of its graphs")

    neighbours = labels = mediators = find_by_name = types = inverses = relations

    def _index(self, question: Question) -> TripleIndex:
        return TripleIndex(
            self._dataset.question_triples(question.id),
            relation_filter=self._filter,
            keep_literals=self.keep_literals,
            keep_inverses=self.keep_inverses,
        )

    def _read_relation_names(self) -> list[str]:
        return sorted(filter(self._filter.keeps, {triple.relation for triple in self._dataset.triples()}))

    @property
    def _filter(self) -> RelationFilter:
        return RelationFilter(self.vocabulary, self.keep_user, self.keep_notable_types)


class QuestionGraph:
    """The graph of one question, read in a thread at the first lookup."""

    def __init__(self, fingerprint: str, terms: Terms, read: Callable[[], TripleIndex]) -> None:
        """Take the function that reads the facts; nothing is read yet."""
        self.fingerprint = fingerprint
        self.terms = terms
        self._read = read
        self._reading: asyncio.Task[TripleIndex] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    def for_question(self, question: Question) -> Self:
        return self

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        return answer_each((await self._index()).relations, ids)

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        index = await self._index()
        return answer_each(lambda hop: index.neighbours(hop, limit), hops)

    async def labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]:
        return answer_each((await self._index()).label, ids)

    async def mediators(self, ids: Sequence[EntityId]) -> Batch[EntityId, bool]:
        index = await self._index()
        return await find_mediators(self, ids, index.terms, index.mediator_types(), index.vocabulary)

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        index = await self._index()
        return answer_each(lambda name: index.find_by_name(name, limit), names)

    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        return answer_each((await self._index()).types, ids)

    async def relation_names(self) -> list[str]:
        return (await self._index()).relation_names()

    async def inverses(self) -> Inverses:
        return (await self._index()).inverses

    async def current_ids(self, ids: Sequence[EntityId]) -> Batch[EntityId, EntityId]:
        """Return the ids: a graph that was made for a question redirects none."""
        return batch({id: id for id in ids})

    async def _index(self) -> TripleIndex:
        if self._reading is None:
            self._reading = asyncio.create_task(asyncio.to_thread(self._read))
        # Shielded: a cancelled question must not cancel reading for the same question in another configuration.
        return await asyncio.shield(self._reading)


def _content_hash(dataset: QuestionGraphs) -> str:
    """Return a hash of the contents of the split's files, independent of their paths."""
    path, name = dataset.path, f"*{dataset.split}*.parquet"
    files = [path] if is_file(path) else glob(path, name) or glob(path, f"data/{name}")
    content = hashlib.blake2b(digest_size=8)
    for file in files:
        with local_copy(file).open("rb") as stream:
            content.update(hashlib.file_digest(stream, "sha256").digest())
    return content.hexdigest()
