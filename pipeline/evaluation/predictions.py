"""Scores a file of predictions from any system: JSON Lines with `id`, `answers` and optionally `raw`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import orjson
import polars as pl
from pydantic import ValidationError

from pipeline.datasets.files import BadRow, Row, Text, json_lines, json_lines_advice, named_by, reason_of, refuse_nan
from pipeline.datasets.interface import Reject
from pipeline.errors import UserError
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.rescore import rescore
from pipeline.rdf_terms import Terms
from pipeline.text import counted
from pipeline.types import Answer, Example, Gold, Prediction, Rejected

LineReader: TypeAlias = Callable[[str | bytes], tuple[str, Answer] | None]
"""Reads a line of another format, which names the question by its text; None for a line that has not this format."""
MissingPredictions: TypeAlias = Literal["wrong", "left_out"]
"""What becomes of a question without a prediction."""
_MISSING: Mapping[MissingPredictions, str] = {"wrong": "counted as wrong", "left_out": "left out"}


class _Linked(Row):
    text: str
    id: str | None = None


class _Line(Row):
    id: Text
    answers: list[Annotated[_Linked, named_by("text")]]
    raw: str | None = None


@dataclass(frozen=True)
class Predictions:
    """The contents of a predictions file."""

    lines: Sequence[tuple[str, Answer]]
    """The readable lines in file order, as question id and answer."""
    by_text: Sequence[tuple[str, Answer]] = ()
    """The readable lines that name the question by its text, with the answer."""

    def with_ids(self, examples: Iterable[Example]) -> Predictions:
        """Return the predictions with the ids of the questions that have the texts; an unknown text stays as an id."""
        ids: dict[str, list[str]] = defaultdict(list)
        for example in examples:
            ids[_key(example.question.text)].append(example.question.id)
        named = [(id, answer) for text, answer in self.by_text for id in ids.get(_key(text), [text])]
        return Predictions([*self.lines, *named])

    @cached_property
    def by_id(self) -> dict[str, Answer]:
        """The answer to each question. The first of several lines for one question counts."""
        by_id: dict[str, Answer] = {}
        for id, answer in self.lines:
            by_id.setdefault(id, answer)
        return by_id

    @property
    def repeated(self) -> list[str]:
        """Ids of the lines that do not count, because an earlier line answers the same question."""
        return list((Counter(id for id, _ in self.lines) - Counter(self.by_id.keys())).elements())


@dataclass(frozen=True, slots=True)
class Scored:
    """Predictions matched with the questions of a dataset, and scored."""

    frame: pl.DataFrame
    """One row per question of the dataset, with the trace columns for answers and scores."""
    lines: Sequence[tuple[Example, Answer]]
    """The file's lines with their questions, including duplicates, as other systems' scripts read them."""
    missing: Sequence[str]
    """Ids of questions with gold answers and without a prediction."""
    unknown: Sequence[str]
    """Predicted ids that are not in the dataset; they are ignored."""
    repeated: Sequence[str]
    """Ids of lines whose question an earlier line answers; they are ignored."""
    unnamed: Sequence[str]
    """Ids of questions with a prediction without an id, whose gold answers are Freebase ids without names."""
    if_missing: MissingPredictions = "wrong"
    """What became of the questions without a prediction."""

    def remarks(self) -> list[str]:
        """Return one sentence for each kind of mismatch between file and dataset, to print below the table."""
        unnamed = "whose gold answers are ids without names, and whose prediction has no id, so that it cannot match"
        problems = [
            ("question", f"without a readable prediction, {_MISSING[self.if_missing]}", self.missing),
            ("prediction", "ignored, for no question of the dataset", self.unknown),
            ("prediction", "ignored, with the id of an earlier line", self.repeated),
            ("question", unnamed, self.unnamed),
        ]
        return [f"{counted(len(ids), noun)} {problem}: {_shortened(ids)}" for noun, problem, ids in problems if ids]


def read_predictions(file: Path, reject: Reject, other_format: LineReader = lambda _: None) -> Predictions:
    """Read a predictions file, plain or gzip. An answer is a text, or an object with `text` and `id`.

    Lines that cannot be read are passed to `reject` with line number and reason. Raises UserError if the file is
    missing or has no readable line.
    """
    if not file.is_file():
        raise UserError(
            f"predictions={file} is not a file: name a JSON Lines file with `id`, `answers` and optionally `raw`"
        )
    read: list[tuple[str, Answer]] = []
    by_text: list[tuple[str, Answer]] = []
    first_reason = ""
    for number, text in json_lines(file):
        if named := other_format(text):
            by_text.append(named)
            continue
        try:
            refuse_nan(text)
            line = _Line.model_validate_json(text)
        except (BadRow, ValidationError) as error:
            reason = reason_of(error)
            first_reason = first_reason or f"line {number}: {reason}{json_lines_advice(text, reason)}"
            reject(Rejected(str(file), number, reason))
        else:
            read.append((line.id, _answer(line)))
    if not read and not by_text:
        raise UserError(f"predictions={file} has no readable prediction: {first_reason or 'it is empty'}")
    return Predictions(read, by_text)


def score_predictions(
    predictions: Predictions,
    examples: Iterable[Example],
    *,
    method: str,
    scoring: ScoringConfig,
    missing: MissingPredictions = "wrong",
) -> Scored:
    """Score the questions of a dataset, under the method name `method`; those without a prediction as `missing` says.

    Raises UserError if no prediction has the id of a question in the dataset.
    """
    by_id = {example.question.id: example for example in examples}
    predictions = predictions.with_ids(by_id.values())
    unknown = [id for id in predictions.by_id if id not in by_id]
    if len(unknown) == len(predictions.by_id):
        raise UserError(
            f"no prediction has the id of a question in the dataset: the dataset has ids like "
            f"{min(by_id, default='(none)')!r}, the predictions have ids like {min(unknown)!r}"
        )
    asked = by_id if missing == "wrong" else {id: each for id, each in by_id.items() if id in predictions.by_id}
    unanswered = Answer(status="failed")
    rows = [_row(example, predictions.by_id.get(id, unanswered), method) for id, example in asked.items()]
    scored = rescore(pl.DataFrame(rows, schema=_SCHEMA), scoring=scoring)
    return Scored(
        frame=scored.with_columns(pl.lit(None, pl.Float32).alias(name) for name in _UNKNOWN),
        lines=[(by_id[id], answer) for id, answer in predictions.lines if id in by_id],
        missing=[id for id, example in by_id.items() if id not in predictions.by_id and example.gold.answers],
        unknown=unknown,
        repeated=predictions.repeated,
        unnamed=[id for id, answer in predictions.by_id.items() if id in by_id and _is_unnamed(by_id[id].gold, answer)],
        if_missing=missing,
    )


_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "point": pl.Int32,
    "question_id": pl.String,
    "dataset": pl.String,
    "method": pl.String,
    "status": pl.String,
    "question": pl.String,
    "meta": pl.String,
    "answers": pl.List(pl.String),
    "answer_ids": pl.List(pl.String),
    "initial_answers": pl.List(pl.String),
    "initial_answer_ids": pl.List(pl.String),
    "first_attempt": pl.String,
    "raw_answer": pl.String,
    "gold": pl.List(pl.String),
    "gold_ids": pl.List(pl.String),
    "gold_aliases": pl.List(pl.List(pl.String)),
    "evidence": pl.List(pl.Null),
    "followed_relations": pl.List(pl.String),
    "gold_relations": pl.List(pl.String),
}
_UNKNOWN = ("answer_in_evidence", "answer_supported", "supported_readi_hit", "faithfulness")
"""Scores that need evidence, which a predictions file does not contain."""


def _row(example: Example, answer: Answer, method: str) -> dict[str, Any]:
    question, gold = example.question, example.gold.answers
    return {
        "point": 0,
        "question_id": question.id,
        "dataset": question.dataset,
        "method": method,
        "status": answer.status,
        "question": question.text,
        "meta": orjson.dumps(dict(question.meta)).decode(),
        "answers": [prediction.text for prediction in answer.predictions],
        "answer_ids": [prediction.id for prediction in answer.predictions],
        "initial_answers": None,
        "initial_answer_ids": None,
        "first_attempt": None,
        "raw_answer": answer.raw,
        "gold": [gold_answer.name for gold_answer in gold],
        "gold_ids": [gold_answer.id for gold_answer in gold],
        "gold_aliases": [list(gold_answer.aliases) for gold_answer in gold],
        "evidence": [],
        "followed_relations": None,
        "gold_relations": None,
    }


def _is_unnamed(gold: Gold, answer: Answer) -> bool:
    """Whether an answer gives names, and the gold answers are ids of nodes whose names the dataset does not know."""
    given = answer.predictions
    if not gold.answers or not given or any(each.id or Terms().own_name(each.text) is None for each in given):
        return False
    return all(Terms().own_name(each.name) is None and not each.aliases for each in gold.answers)


def _key(text: str) -> str:
    return " ".join(text.split()).casefold()


def _answer(line: _Line) -> Answer:
    return Answer(tuple(Prediction(answer.text, answer.id) for answer in line.answers), raw=line.raw or "")


def _shortened(ids: Sequence[str]) -> str:
    return ", ".join(ids[:3]) + (" …" if len(ids) > 3 else "")
