"""Reads ComplexWebQuestions in its official form and as ToG distributes it (specification §10.3).

Layout, plain or gzipped, each file an array of questions:

    ComplexWebQuestions_{split}_wans.json     official, with answers; preferred
    ComplexWebQuestions_{split}.json          official
    cwq.json                                  ToG's copy of the test split

A question holds `ID`, `question`, `compositionality_type`, `webqsp_ID` and `sparql`. The official files list `answers`
(`answer`, `answer_id`, `aliases`). ToG's copy has one `answer` and a `topic_entity`, which maps MIDs to names.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.datasets.aliases import read_aliases, with_aliases
from pipeline.datasets.files import BadRow, FreebaseDataset, Row, Text, find_file, json_array, read_examples
from pipeline.datasets.gold_paths import SparqlPaths, query_graph
from pipeline.datasets.interface import Reject
from pipeline.datasets.remote import DataPath
from pipeline.types import Entity, Example, Gold, GoldAnswer


class _Answer(Row):
    answer: str | None = None
    answer_id: str | None = None
    aliases: tuple[str, ...] = ()


class _Question(Row):
    ID: Text
    question: Text
    compositionality_type: str | None = None
    webqsp_ID: str | None = None  # noqa: N815
    sparql: str | None = None
    answers: tuple[_Answer, ...] = ()
    answer: str | None = None
    topic_entity: dict[str, str] | None = None


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class CWQ(FreebaseDataset):
    """ComplexWebQuestions over Freebase. The keys are described in `conf/dataset/cwq.yaml`.

    Topic entities come from the gold SPARQL, here and in ToG's copy, so some do not occur in the question's text. ToG's
    copy has their names; in the official files a topic's name is its id.
    """

    aliases: tuple[DataPath, ...] | None
    """Files of further names of answers (`pipeline/datasets/aliases.py`)."""

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield the questions in file order, also those without answers. Raises UserError for a wrong file."""
        stem = f"ComplexWebQuestions_{self.split}"
        official = (f"{stem}_wans.json", f"{stem}.json")
        patterns = (*official, "cwq.json") if self.split == "test" else official
        file = find_file(self.path, patterns, what="CWQ questions")
        aliases = read_aliases(self.aliases or ())
        examples = read_examples(file, json_array(file), self._example, reject, what="CWQ questions")
        return (with_aliases(example, aliases) for example in examples)

    def _example(self, row: object) -> Example:
        question = _Question.model_validate(row)
        topics = question.topic_entity
        if topics is None:
            topics = {mid: mid for mid in _topics(question.sparql)}
        return Example(
            self.question(
                question.ID,
                question.question,
                topics=(Entity(mid, name) for mid, name in topics.items()),
                meta={"type": question.compositionality_type, "source": question.webqsp_ID},
            ),
            Gold(
                answers=_gold(question),
                paths=SparqlPaths((question.sparql,) if question.sparql else (), {mid: mid for mid in topics}),
                sparql=question.sparql,
            ),
        )


def _topics(sparql: str | None) -> tuple[str, ...]:
    graph = query_graph(sparql) if sparql else None
    return graph.topics() if graph else ()


def _gold(question: _Question) -> tuple[GoldAnswer, ...]:
    if question.answer is not None:
        return (GoldAnswer(question.answer),)
    return tuple(dict.fromkeys(_gold_answer(answer) for answer in question.answers))


def _gold_answer(answer: _Answer) -> GoldAnswer:
    name = answer.answer or answer.answer_id
    if not name:
        raise BadRow("an answer has neither a name nor an id")
    return GoldAnswer(name, id=answer.answer_id, aliases=answer.aliases)
