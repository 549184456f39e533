"""Reads GrailQA in its official form, and ToG's sample of 1,000 dev questions (specification §10.4).

Layout, plain or gzipped, each file an array of questions:

    grailqa_v1.0_{split}.json        official, also in GrailQA_v1.0/
    graliqa.json, grailqa.json       ToG's sample of the dev split

A question holds `qid`, `question`, `answer` (`answer_type`, `answer_argument`, `entity_name`), `function`, `level`,
`graph_query` and `sparql_query`; in ToG's sample also `topic_entity`, which maps MIDs to names. The official test split
has no answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.datasets.files import FreebaseDataset, Row, Text, find_file, json_array, read_examples
from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.datasets.interface import Reject
from pipeline.types import Entity, Example, Gold, GoldAnswer


class _Answer(Row):
    answer_type: Literal["Entity", "Value"]
    answer_argument: Text
    entity_name: str | None = None


class _Node(Row):
    node_type: str
    id: Text
    friendly_name: str | None = None


class _Graph(Row):
    nodes: tuple[_Node, ...] = ()


class _Question(Row):
    qid: Text
    question: Text
    answer: tuple[_Answer, ...] = ()
    function: str | None = None
    level: str | None = None
    graph_query: _Graph = _Graph()
    sparql_query: str | None = None
    topic_entity: dict[str, str] | None = None


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class GrailQA(FreebaseDataset):
    """GrailQA questions over Freebase. Topic entities are the entities of the query graph.

    The keys are described in `conf/dataset/grailqa.yaml`.
    """

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield the questions in file order, also those without answers. Raises UserError for a wrong file."""
        splits = ("test", "test_public") if self.split == "test" else (self.split,)
        named = [f"grailqa_v1.0_{split}.json" for split in splits]
        official = (*named, *(f"GrailQA_v1.0/{name}" for name in named))
        patterns = (*official, "graliqa.json", "grailqa.json") if self.split == "dev" else official
        file = find_file(self.path, patterns, what="GrailQA questions")
        return read_examples(file, json_array(file), self._example, reject, what="GrailQA questions")

    def _example(self, row: object) -> Example:
        question = _Question.model_validate(row)
        topics = question.topic_entity
        if topics is None:
            nodes = (node for node in question.graph_query.nodes if node.node_type == "entity")
            topics = {node.id: node.friendly_name or node.id for node in nodes}
        return Example(
            self.question(
                question.qid,
                question.question,
                topics=(Entity(mid, name) for mid, name in topics.items()),
                meta={"type": question.function, "level": question.level},
            ),
            Gold(
                answers=tuple(dict.fromkeys(_gold(answer) for answer in question.answer)),
                paths=SparqlPaths(
                    (question.sparql_query,) if question.sparql_query else (), {mid: mid for mid in topics}
                ),
                sparql=question.sparql_query,
            ),
        )


def _gold(answer: _Answer) -> GoldAnswer:
    if answer.answer_type == "Value":
        return GoldAnswer(answer.answer_argument)
    return GoldAnswer(answer.entity_name or answer.answer_argument, id=answer.answer_argument)
