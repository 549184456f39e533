"""A dataset of one's own: questions and facts in two CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic.dataclasses import dataclass

from pipeline.datasets.files import BadRow, read_examples
from pipeline.datasets.port import Reject
from pipeline.errors import UserError
from pipeline.types import Entity, Example, Gold, GoldAnswer, Question, Triple


@dataclass(frozen=True, kw_only=True)
class CsvQuestions:
    """The keys of `conf/dataset/csv.yaml`, checked by pydantic: a wrong value is one sentence for the user."""

    folder: Path
    split: str = "test"
    name: str = "csv"

    def examples(self, reject: Reject) -> Iterator[Example]:
        """The questions in file order. A row that cannot be read is rejected with its line, and reading goes on."""
        file = self.folder / "questions.csv"
        return read_examples(file, _rows(file), self._example, reject, what="questions")

    def triples(self) -> Iterator[Triple]:
        """The facts; this is the graph that `kg=embedded` searches."""
        for _, row in _rows(self.folder / "facts.csv"):
            yield Triple(row["head"], row["relation"], row["tail"])

    def _example(self, row: Mapping[str, str]) -> Example:
        if not row["id"] or not row["answers"]:
            raise BadRow("id and answers must not be empty")
        question = Question(
            id=row["id"],
            dataset=self.name,
            split=self.split,
            text=row["question"],
            topic_entities=(Entity(id=row["topic"], name=row["topic"]),),  # nodes of this graph are their names
        )
        return Example(question, Gold(answers=tuple(map(GoldAnswer, row["answers"].split(";")))))


def _rows(file: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Each row with its line number, the heading being line 1."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    return enumerate(csv.DictReader(text.splitlines(), restval=""), start=2)
