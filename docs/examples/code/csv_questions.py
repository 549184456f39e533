"""An example dataset: questions and facts in two CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic.dataclasses import dataclass

from pipeline import Entity, Example, Gold, GoldAnswer, Question, Triple, UserError
from pipeline.datasets.files import BadRow, read_examples
from pipeline.datasets.interface import Reject


@dataclass(frozen=True, kw_only=True)
class CsvQuestions:
    """A dataset whose fields are the keys of `conf/dataset/csv.yaml`. Pydantic checks their values."""

    folder: Path
    split: str
    name: str

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield the questions in file order. A row that cannot be read is rejected with its line number and skipped."""
        file = self.folder / "questions.csv"
        return read_examples(file, _rows(file), self._example, reject, what="questions")

    def triples(self) -> Iterator[Triple]:
        """Yield the facts of the graph, which `kg=embedded` searches."""
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
            topic_entities=(Entity(id=row["topic"], name=row["topic"]),),  # the id of a node in this graph is its name
        )
        return Example(question, Gold(answers=tuple(map(GoldAnswer, row["answers"].split(";")))))


def _rows(file: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Return each row with its line number. Line 1 is the header."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    return enumerate(csv.DictReader(text.splitlines(), restval=""), start=2)
