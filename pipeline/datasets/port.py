"""What a dataset is: a stream of examples, and the graph it brings along, if any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias, runtime_checkable

from pipeline.types import Example, Rejected, Triple

Reject: TypeAlias = Callable[[Rejected], None]
"""Called for each row that cannot be read; raises when the run is strict."""


class Dataset(Protocol):
    """A dataset in the form it is officially distributed. Rows come in file order, without loading the file whole."""

    @property
    def name(self) -> str:
        """`webqsp`, `metaqa-2hop`, …: the `dataset` column of every table."""
        ...

    @property
    def split(self) -> str: ...

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Read the questions. Raises UserError for a missing file or a file that is not of this format at all."""
        ...

    def triples(self) -> Iterator[Triple]:
        """The dataset's own graph. Raises UserError, naming the remedy, when it has none."""
        ...


@runtime_checkable
class Counted(Protocol):
    """What a dataset may add, for the progress bar, where it need not parse its rows to know."""

    def count(self) -> int | None:
        """How many rows `examples` would read, unreadable ones included; None where only reading would tell."""
        ...
