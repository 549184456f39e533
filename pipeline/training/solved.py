"""Questions that come with their solutions: what training data is collected from, and what is kept out of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass as plain_dataclass
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, FilePath, model_validator
from pydantic.dataclasses import dataclass

from pipeline.datasets.files import lines
from pipeline.datasets.port import Counted, Reject
from pipeline.errors import UserError
from pipeline.text import normalise
from pipeline.types import Example, Gold, Question, Triple


@plain_dataclass(frozen=True, slots=True)
class Solved(Question):
    """A question with its gold. No dataset yields one: a method meets it only where training data is collected."""

    gold: Gold = Gold()  # noqa: RUF009 - frozen, and empty
    held_out: bool = False
    """Whether it is to be kept out of training data."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Material:
    """What must not be trained on."""

    held_out: tuple[FilePath, ...] = ()
    """Files of questions that must not be trained on, as `read_held_out` reads them."""
    test_split: bool = False
    """Take a test split for training material."""

    def refuse_test(self, split: str, *, given: str, instead: str) -> None:
        """Raise UserError for a test split, unless it is asked for: `given` says where it was, `instead` the mend."""
        if split.lower().startswith("test") and not self.test_split:
            raise UserError(
                f"{given} is what models are measured on, not trained: {instead}, "
                "or material.test_split=true if that is what you want"
            )


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class SolvedQuestions(Material):
    """Another dataset's questions, each with its gold; the graph is its own.

    Raises UserError for a test split, unless it is asked for.
    """

    dataset: Any

    @model_validator(mode="after")
    def _refuse_test(self) -> SolvedQuestions:
        self.refuse_test(self.split, given=f"dataset.split={self.split}", instead="give another dataset.split")
        return self

    @property
    def name(self) -> str:
        """The other one's."""
        return str(self.dataset.name)

    @property
    def split(self) -> str:
        return str(self.dataset.split)

    def examples(self, reject: Reject) -> Iterator[Example]:
        """The other one's, in its order, none left out: those that are held out say so."""
        held_out = read_held_out(self.held_out)
        for example in self.dataset.examples(reject):
            question = example.question
            known = {field.name: getattr(question, field.name) for field in fields(question)}
            held = is_held_out(question.id, question.text, held_out)
            yield replace(example, question=Solved(**known, gold=example.gold, held_out=held))

    def triples(self) -> Iterator[Triple]:
        """The other one's graph."""
        yield from self.dataset.triples()

    def count(self) -> int | None:
        """As many as the other one has."""
        return self.dataset.count() if isinstance(self.dataset, Counted) else None


def read_held_out(files: Iterable[Path]) -> frozenset[str]:
    """The ids, and the normal forms of the texts, of the questions in some files, plain or gzipped.

    A line is a JSON object with an `id`, a `question` or both, or else a text or an id itself, up to a tab: so the
    question files of MetaQA can be named as they are. Raises UserError for a file that cannot be read.
    """
    found: set[str] = set()
    for file in files:
        for number, line in lines(file):
            try:
                found |= _named(line.decode())
            except (UnicodeDecodeError, json.JSONDecodeError):
                raise UserError(f"{file}, line {number}: neither a question nor a JSON object") from None
    return frozenset(found - {""})


def is_held_out(id: str, text: str, held_out: frozenset[str]) -> bool:
    """Whether a question is among those that `read_held_out` has read: by its id, or by its text in any form."""
    return id in held_out or normalise(text) in held_out


def _named(line: str) -> set[str]:
    if not line.startswith("{"):
        text = line.partition("\t")[0].strip()
        return {text, normalise(text)}
    row = json.loads(line)
    return {str(row.get("id") or ""), normalise(str(row.get("question") or ""))}
