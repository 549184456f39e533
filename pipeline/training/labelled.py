"""Labelled questions, from which training data is collected, and the questions that are held out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass as plain_dataclass
from dataclasses import fields, replace
from pathlib import Path

from pydantic import ConfigDict, FilePath, model_validator
from pydantic.dataclasses import dataclass

from pipeline.datasets.files import lines
from pipeline.datasets.interface import Counted, DerivedDataset, Reject
from pipeline.errors import UserError
from pipeline.normalisation import normalise
from pipeline.types import Example, Gold, Question


@plain_dataclass(frozen=True, slots=True)
class LabelledQuestion(Question):
    """A question with its gold. Methods meet one only during data collection; no dataset yields one."""

    gold: Gold = Gold()  # noqa: RUF009 - frozen, and empty
    held_out: bool = False
    """Whether it must be kept out of training data."""

    @property
    def unusable(self) -> str | None:
        """Why nothing can be collected from it, whatever the graph has; None if something may be."""
        if self.held_out:
            return "held out"
        if not self.topic_entities:
            return "no topic entity"
        return None if self.gold.answers else "no answer"


def is_test(split: str) -> bool:
    """Whether a split is for evaluation: `test`, or one whose name begins so."""
    return split.lower().startswith("test")


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class TrainingSource:
    """Rules for what may be trained on.

    The keys are described in `conf/collect_calls.yaml` and `conf/collect_corrections.yaml`.
    """

    held_out: tuple[FilePath, ...]
    """Files of questions that must not be trained on, as `read_held_out` reads them."""
    allow_test_split: bool
    """Accept a test split as training data."""

    def refuse_test(self, split: str, *, given: str, fix: str) -> None:
        """Raise UserError for a test split, unless it is allowed. `given` says where it was given, `fix` what to do."""
        if is_test(split) and not self.allow_test_split:
            raise UserError(
                f"{given} is for evaluation, not for training: {fix}, or set material.allow_test_split=true"
            )


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class LabelledQuestions(DerivedDataset, TrainingSource):
    """The questions of another dataset, each with its gold, and that dataset's name, split and graph.

    The keys are described in `conf/collect_arg.yaml`.

    Raises UserError for a test split, unless it is allowed.
    """

    @model_validator(mode="after")
    def _refuse_test(self) -> LabelledQuestions:
        self.refuse_test(self.split, given=f"dataset.split={self.split}", fix="give another dataset.split")
        return self

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield all questions of the dataset in its order; held-out questions are marked, not omitted."""
        held_out = read_held_out(self.held_out)
        for example in self.dataset.examples(reject):
            question = example.question
            known = {field.name: getattr(question, field.name) for field in fields(question)}
            held = is_held_out(question.id, question.text, held_out)
            yield replace(example, question=LabelledQuestion(**known, gold=example.gold, held_out=held))

    def count(self) -> int | None:
        """Return the number of rows of the dataset, if it knows."""
        return self.dataset.count() if isinstance(self.dataset, Counted) else None


def read_held_out(files: Iterable[Path]) -> frozenset[str]:
    """Read the ids and the normalised texts of the questions in some files, plain or gzipped.

    A line is a JSON object with an `id`, a `question` or both; otherwise the line up to the first tab is an id or a
    text, so MetaQA's question files can be given unchanged. Raises UserError for a file that cannot be read.
    """
    found: set[str] = set()
    for file in files:
        for number, line in lines(file):
            try:
                found |= _keys(line.decode())
            except (UnicodeDecodeError, json.JSONDecodeError):
                raise UserError(f"{file}, line {number}: expected a question, an id or a JSON object") from None
    return frozenset(found - {""})


def is_held_out(id: str, text: str, held_out: frozenset[str]) -> bool:
    """Whether `held_out`, as `read_held_out` returns it, contains a question, by id or by normalised text."""
    return id in held_out or normalise(text) in held_out


def _keys(line: str) -> set[str]:
    if not line.startswith("{"):
        text = line.partition("\t")[0].strip()
        return {text, normalise(text)}
    row = json.loads(line)
    return {str(row.get("id") or ""), normalise(str(row.get("question") or ""))}
