"""A dataset's questions with their gold queries: here the query is what is worked on, and only answers are gold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass

from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.datasets.port import Reject
from pipeline.types import EntityId, Example, Question, Triple


@dataclass(frozen=True, slots=True)
class QueriedQuestion(Question):
    """A question with its gold query, to be taken apart. No method that answers questions is given one."""

    sparql: str | None = None
    nodes: Mapping[str, EntityId] = field(default_factory=dict)
    """The id that a topic entity has in the query → its id in the graph."""


@checked_dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Queried:
    """The questions of another dataset, each with its gold query."""

    dataset: Any

    @property
    def name(self) -> str:
        return str(self.dataset.name)

    @property
    def split(self) -> str:
        return str(self.dataset.split)

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Read the questions. Raises UserError as the dataset does."""
        return map(_queried, self.dataset.examples(reject))

    def triples(self) -> Iterator[Triple]:
        """The other one's graph."""
        yield from self.dataset.triples()


def _queried(example: Example) -> Example:
    gold = example.gold
    nodes = gold.paths.topics if isinstance(gold.paths, SparqlPaths) else {}
    known = {one.name: getattr(example.question, one.name) for one in fields(example.question)}
    return replace(example, question=QueriedQuestion(**known, sparql=gold.sparql, nodes=nodes))
