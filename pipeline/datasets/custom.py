"""Reads a user's own graph and questions. Both may be paths or URLs, and plain or gzipped.

The graph is a file of triples (`pipeline/datasets/triples.py`). The questions are JSON Lines:

| field | holds |
| --- | --- |
| `id`, `question` | texts |
| `topic_entities`, `answers` | lists of names, or of objects (`id`, `label` or `name`, `mid`, `aliases`) |
| `answers_alt` | optional; accepted names: aliases if there is one answer, otherwise further answers |
| `answer_mids` | optional; ids of the answers in any order: aliases if there is one answer, otherwise ignored |
| `sparql` | optional; the gold query over Freebase names, from which gold paths are derived |
| `gold_relation_paths` | optional; lists of relations from a topic entity to an answer; a caret before one is ignored |
| any other | available to `filter` and `meta` |
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from pipeline.datasets.files import BadRow, FileDataset, Row, Text, json_lines, named_by, read_examples
from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.datasets.interface import Reject
from pipeline.datasets.inverses import in_both_directions, read_inverses
from pipeline.datasets.remote import AnyPath, DataPath, is_file
from pipeline.datasets.triples import read_triples
from pipeline.errors import UserError
from pipeline.rdf_terms import Terms
from pipeline.types import Entity, Example, Gold, GoldAnswer, Relation, RelationPath, Scalar, Triple

_SHOWN_VALUES = 5
"""How many values of a field are named if the filter selects no question."""


class _Node(Row):
    """A topic entity or an answer. Its node in the graph is its id, else its name, else its MID."""

    id: Text | None = None
    label: Text | None = None
    name: Text | None = None
    mid: Text | None = None
    aliases: tuple[str, ...] = ()

    def node(self) -> str:
        node = self.id or self.label or self.name or self.mid
        if not node:
            raise BadRow("a topic entity or answer has neither id, label, name nor mid")
        return node

    def title(self) -> str:
        return self.label or self.name or self.node()


class _Question(Row):
    model_config = ConfigDict(extra="allow")

    id: Text
    question: Text
    topic_entities: list[Annotated[_Node, named_by("id")]]
    answers: list[Annotated[_Node, named_by("name")]]
    answers_alt: tuple[str, ...] = ()
    answer_mids: tuple[str, ...] = ()
    sparql: str | None = None
    gold_relation_paths: list[list[str]] | None = None


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Custom(FileDataset):
    """A user's own questions and graph. The keys are described in `conf/dataset/custom.yaml`."""

    triples_file: DataPath = Field(alias="triples")
    """Configuration key `triples`."""
    questions: DataPath
    inverses: DataPath | None
    meta: tuple[str, ...]
    """Scalar fields that become `Question.meta` if the row has them. Methods can see them, so name no gold fields."""
    filter: Mapping[str, Scalar] | None
    """Field → value: keep only the questions that match; None keeps all."""

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield the questions that pass the filter. Raises UserError for a missing or wrong file."""
        _check(self.questions, "questions")
        examples = read_examples(self.questions, json_lines(self.questions), self._read, reject, what="questions")
        return self._filtered(examples)

    def count(self) -> int | None:
        """Return the number of lines; None if a filter is set."""
        _check(self.questions, "questions")
        return None if self.filter else sum(1 for _ in json_lines(self.questions))

    def triples(self) -> Iterator[Triple]:
        """Yield the user's facts. Raises UserError for a missing file or a bad line."""
        _check(self.triples_file, "triples")
        facts = read_triples(self.triples_file)
        return facts if self.inverses is None else in_both_directions(facts, read_inverses(self.inverses))

    def _filtered(self, examples: Iterator[Example]) -> Iterator[Example]:
        wanted = self.filter or {}
        values: dict[str, dict[Scalar, None]] = {field: {} for field in wanted}
        is_empty = True
        for example in examples:
            meta = example.question.meta
            for field in meta.keys() & wanted:
                values[field][meta[field]] = None
            if all(field in meta and meta[field] == value for field, value in wanted.items()):
                is_empty = False
                yield example
        if unknown := [field for field in wanted if not values[field]]:
            raise UserError(f"dataset.filter: no question in {self.questions} has the field {', '.join(unknown)}")
        if wanted and is_empty:
            raise UserError(
                f"dataset.filter selects no question of {self.questions}. Values there: "
                f"{'; '.join(map(_values_text, values, values.values()))}"
            )

    def _read(self, line: bytes) -> Example:
        row = _Question.model_validate_json(line)
        topics = row.topic_entities
        entities = {topic.node(): Entity(topic.node(), topic.title()) for topic in topics}
        return Example(
            self.question(row.id, row.question, topics=entities.values(), meta=self._meta(row)),
            Gold(
                answers=_gold(row),
                paths=SparqlPaths(
                    (row.sparql,) if row.sparql else (),
                    {topic.mid or topic.node(): topic.node() for topic in topics},
                    unverified=_outward(row.gold_relation_paths or ()),
                ),
                sparql=row.sparql,
            ),
        )

    def _meta(self, row: _Question) -> dict[str, Scalar]:
        present = {"id": row.id, **(row.model_extra or {})}
        meta = {field: present[field] for field in (*self.meta, *(self.filter or ())) if field in present}
        for field, value in meta.items():
            if isinstance(value, list | dict):
                raise BadRow(f"{field}: expected a text, a number, true, false or null")
        return meta


def _check(file: AnyPath, key: str) -> None:
    if not is_file(file):
        raise UserError(f"dataset.{key}={file} is not a file")


def _values_text(field: str, values: Collection[Scalar]) -> str:
    """Name the first values of a field as `dataset.filter` takes them."""
    shown = ", ".join(json.dumps(value, ensure_ascii=False) for value in islice(values, _SHOWN_VALUES))
    return f"{field} = {shown}{', …' if len(values) > _SHOWN_VALUES else ''}"


def _gold(row: _Question) -> tuple[GoldAnswer, ...]:
    """Return the gold answers. One given by name has no id and is matched by name; one given as a MID has that id."""
    golds = [GoldAnswer(node.title(), id=node.id or _mid(node.title()), aliases=node.aliases) for node in row.answers]
    if len(golds) == 1:
        golds = [replace(golds[0], aliases=(*golds[0].aliases, *row.answers_alt, *row.answer_mids))]
    else:
        golds += [GoldAnswer(name) for name in row.answers_alt]
    return tuple(dict.fromkeys(golds))


def _mid(name: str) -> str | None:
    return name if Terms().own_name(name) is None else None


def _outward(paths: Iterable[Sequence[str]]) -> tuple[RelationPath, ...]:
    """Return the paths with every step outward; verification over the graph tries the other directions.

    A caret before a relation, as `kgqa losses` prints it, is a direction too.
    """
    return tuple(tuple(Relation(name.removeprefix("^"), "out") for name in path) for path in paths if path)
