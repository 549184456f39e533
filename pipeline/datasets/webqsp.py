"""Reads WebQSP in its official form and as ToG distributes it (specification §10.2).

Layout, plain or gzipped:

    WebQSP.{split}.json      official, also in data/; one object: {"Questions": [question, …]}
    WebQSP.json              ToG's copy of the test split; an array of questions, each with a `topic_entity`

A question holds `QuestionId`, `RawQuestion` and `Parses`; a parse holds `Answers`, `Sparql`, `TopicEntityMid`,
`TopicEntityName`, `InferentialChain` and `AnnotatorComment`. `topic_entity` maps MIDs to names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.datasets.files import Row, Text, find_file, json_array, read_examples
from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.datasets.interface import Reject
from pipeline.datasets.remote import DataPath
from pipeline.errors import UserError
from pipeline.types import DatasetKind, Entity, Example, Gold, GoldAnswer, Question, Triple


class _Answer(Row):
    AnswerType: Literal["Entity", "Value"]
    AnswerArgument: Text
    EntityName: str | None = None


class _Comment(Row):
    ParseQuality: str | None = None
    QuestionQuality: str | None = None


class _Parse(Row):
    Answers: list[_Answer]
    Sparql: str | None = None
    TopicEntityMid: str | None = None
    TopicEntityName: str | None = None
    InferentialChain: list[str] | None = None
    Constraints: object = None
    Time: object = None
    Order: object = None
    AnnotatorComment: _Comment = _Comment()


class _Question(Row):
    QuestionId: Text
    RawQuestion: Text
    Parses: list[_Parse]
    topic_entity: dict[str, str] | None = None


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class WebQSP:
    """WebQSP questions over Freebase."""

    path: DataPath
    """The distributed folder, or one of its files."""
    split: str
    name: str
    kind: DatasetKind | None
    webqsp_gold: Literal["union", "best_parse"]
    """`union`: the answers of all parses. `best_parse`: those of the first parse annotated as complete, else the first.

    (The official scorer picks, after the fact, the parse that fits the prediction best.)
    """

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield the questions in file order, also those without answers. Raises UserError for a wrong file."""
        official = (f"WebQSP.{self.split}.json", f"data/WebQSP.{self.split}.json")
        patterns = (*official, "WebQSP.json") if self.split == "test" else official
        file = find_file(self.path, patterns, what="WebQSP questions")
        return read_examples(file, json_array(file, key="Questions"), self._example, reject, what="WebQSP questions")

    def triples(self) -> Iterator[Triple]:
        """Raise UserError: WebQSP has no graph."""
        raise UserError("WebQSP has no graph of its own: use kg=sparql with a Freebase server")

    def _example(self, row: object) -> Example:
        question = _Question.model_validate(row)
        best = next(filter(_is_complete, question.Parses), next(iter(question.Parses), None))
        parses = question.Parses if self.webqsp_gold == "union" else [best] if best else []
        topics = question.topic_entity or {
            parse.TopicEntityMid: parse.TopicEntityName or parse.TopicEntityMid
            for parse in parses
            if parse.TopicEntityMid
        }
        queries = tuple(dict.fromkeys(parse.Sparql for parse in parses if parse.Sparql))
        return Example(
            Question(
                id=question.QuestionId,
                dataset=self.name,
                kind=self.kind,
                split=self.split,
                text=question.RawQuestion,
                topic_entities=tuple(Entity(mid, name) for mid, name in topics.items()),
                meta={
                    "hops": len(best.InferentialChain) if best and best.InferentialChain else None,
                    "constraints": bool(best and (best.Constraints or best.Time or best.Order)),
                },
            ),
            Gold(
                answers=tuple(dict.fromkeys(_gold(answer) for parse in parses for answer in parse.Answers)),
                paths=SparqlPaths(queries, {mid: mid for mid in topics}),
                sparql=best.Sparql if best else None,
            ),
        )


def _is_complete(parse: _Parse) -> bool:
    comment = parse.AnnotatorComment
    return comment.ParseQuality == "Complete" and comment.QuestionQuality == "Good"


def _gold(answer: _Answer) -> GoldAnswer:
    if answer.AnswerType == "Value":
        return GoldAnswer(answer.AnswerArgument)
    return GoldAnswer(answer.EntityName or answer.AnswerArgument, id=answer.AnswerArgument)
