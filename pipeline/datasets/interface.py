"""The dataset interface: a stream of examples and, if the dataset has one, its graph.

To read a format of your own:

1. If your data fits the layout in `pipeline/datasets/custom.py`, use `dataset=custom` and write no class.
2. Otherwise write a class with the members of `Dataset`. `examples` usually ends in
   `return read_examples(file, lines(file), self._example, reject, what="questions")` (`pipeline/datasets/files.py`),
   where `_example` turns one row into an `Example` and raises `BadRow` with the reason if it cannot. `read_examples`
   rejects such rows and repeated ids, and raises UserError if the file has another format.
3. `triples` yields the facts, or raises UserError that names another `kg=` if the dataset has no graph. A dataset with
   one graph per question also has `question_triples(question_id)`, for `kg=subgraph` (see `rog.py`).
4. Add a YAML file whose `_target_` is the class and whose other keys are its arguments. The instance is sent to
   workers, so it must be picklable.

`docs/examples/code/csv_questions.py` is a complete reader with its YAML file; docs/extending.md explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias, runtime_checkable

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.types import Example, Rejected, Triple

Reject: TypeAlias = Callable[[Rejected], None]
"""Called for each row that cannot be read; raises if the run is strict."""


class Dataset(Protocol):
    """A dataset in its official file format. Rows come in file order; the file is never loaded whole if avoidable."""

    @property
    def name(self) -> str:
        """The dataset's name, such as `webqsp`: the `dataset` column of every table."""
        ...

    @property
    def split(self) -> str:
        """The split, such as `test`. Question ids are unique inside (name, split)."""
        ...

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield the questions with their gold. Raises UserError if the file is missing or has another format."""
        ...

    def triples(self) -> Iterator[Triple]:
        """Yield the facts of the dataset's graph. Raises UserError, naming an alternative, if it has none."""
        ...


@runtime_checkable
class Counted(Protocol):
    """Optional: a dataset that knows its number of rows without parsing them, for the progress bar."""

    def count(self) -> int | None:
        """Return how many rows `examples` reads, unreadable ones included; None if only reading can tell."""
        ...


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class DerivedDataset:
    """Base of the datasets that take another one's questions, and with them its name, split and graph."""

    dataset: Any

    @property
    def name(self) -> str:
        return str(self.dataset.name)

    @property
    def split(self) -> str:
        return str(self.dataset.split)

    def triples(self) -> Iterator[Triple]:
        """Yield the facts of the other dataset's graph."""
        yield from self.dataset.triples()
