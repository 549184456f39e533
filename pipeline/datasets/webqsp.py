"""Reads WebQSP in its official form and as ToG distributes it (specification §10.2).

Layout, plain or gzipped:

    WebQSP.{split}.json      official, also in data/; one object: {"Questions": [question, …]}
    WebQSP.json              ToG's copy of the test split; an array of questions, each with a `topic_entity`
    webqsp_simple_{split}.jsonl   the simplified file of StructGPT, Readi and SRP; one question per line

A question holds `QuestionId`, `RawQuestion` and `Parses`; a parse holds `Answers`, `Sparql`, `TopicEntityMid`,
`TopicEntityName`, `InferentialChain` and `AnnotatorComment`. `topic_entity` maps MIDs to names. The simplified
file holds `ID`, `Question`, `TopicEntityID`, `TopicEntityName`, `Answers` and `Aliases`: names, the aliases in one list
per answer, or in one list for all: each answer then gets all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.datasets.aliases import read_aliases, with_aliases
from pipeline.datasets.files import FreebaseDataset, Row, Text, find_file, json_array, json_lines, read_examples
from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.datasets.interface import Reject
from pipeline.datasets.remote import DataPath
from pipeline.types import Entity, Example, Gold, GoldAnswer


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


class _ShortQuestion(Row):
    """A question of the simplified file, whose answers are names."""

    ID: Text
    Question: Text
    TopicEntityID: str | list[str] | None = None
    TopicEntityName: str | list[str] | None = None
    Answers: list[Text]
    Aliases: tuple[str | list[str], ...] = ()


def _golds(row: _ShortQuestion) -> tuple[GoldAnswer, ...]:
    """Return the gold answers. Aliases in one list do not say whose they are, so each answer gets all of them."""
    if len(row.Aliases) == len(row.Answers) and all(isinstance(each, list) for each in row.Aliases):
        aliases: dict[str, dict[str, None]] = {name: {} for name in row.Answers}
        for name, own in zip(row.Answers, row.Aliases, strict=True):
            aliases[name] |= dict.fromkeys(_list(own))
    else:
        flat = dict.fromkeys(name for each in row.Aliases for name in _list(each) if name not in row.Answers)
        aliases = dict.fromkeys(row.Answers, flat) if row.Answers else {name: {} for name in flat}
    return tuple(GoldAnswer(name, aliases=tuple(own)) for name, own in aliases.items())


def _list(texts: str | list[str] | None) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts or ())


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class WebQSP(FreebaseDataset):
    """WebQSP questions over Freebase. The keys are described in `conf/dataset/webqsp.yaml`."""

    aliases: tuple[DataPath, ...] | None
    """Files of further names of answers (`pipeline/datasets/aliases.py`)."""
    webqsp_gold: Literal["union", "best_parse"]
    """`union`: the answers of all parses. `best_parse`: those of the first parse annotated as complete, else the first.

    (The official scorer picks, after the fact, the parse that fits the prediction best.)
    """

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield the questions in file order, also those without answers. Raises UserError for a wrong file."""
        official = (f"WebQSP.{self.split}.json", f"data/WebQSP.{self.split}.json")
        short = f"webqsp_simple_{self.split}.jsonl"
        patterns = (*official, "WebQSP.json", short) if self.split == "test" else (*official, short)
        file = find_file(self.path, patterns, what="WebQSP questions")
        aliases = read_aliases(self.aliases or ())
        if file.name.removesuffix(".gz").endswith(".jsonl"):
            examples = read_examples(file, json_lines(file), self._short_example, reject, what="WebQSP questions")
        else:
            rows = json_array(file, key="Questions")
            examples = read_examples(file, rows, self._example, reject, what="WebQSP questions")
        return (with_aliases(example, aliases) for example in examples)

    def _short_example(self, line: bytes) -> Example:
        row = _ShortQuestion.model_validate_json(line)
        ids, names = _list(row.TopicEntityID), _list(row.TopicEntityName)
        names += ids[len(names) :]
        return Example(
            self.question(
                row.ID, row.Question, topics=(Entity(id, name) for id, name in zip(ids, names, strict=False))
            ),
            Gold(answers=_golds(row)),
        )

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
            self.question(
                question.QuestionId,
                question.RawQuestion,
                topics=(Entity(mid, name) for mid, name in topics.items()),
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
