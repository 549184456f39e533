"""The numbers that the papers print (methods.md §11), as data: each value of `published.yaml` as one `Figure`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

_FILE = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One printed number."""

    paper: str
    """Who prints it: `SRP`, `ArG`, `PARoG` or `R3-Cycle`."""
    table: str
    """Which of its tables, in our words."""
    method: str
    """As the paper names it, or `model alone`."""
    variant: str | None
    """An ablation or a setting; None for the method as it is."""
    model: str | None
    """The language model, where it is told."""
    dataset: str | None
    """Our name of the dataset; None where the paper does not say."""
    subset: str | None
    """The part of it that was measured: a type of question, or a domain; None for all of it."""
    metric: str
    """As the paper calls it."""
    value: float
    """In percent, or in the unit that the metric names."""
    upper: float | None
    """The other end, where the number is only known to lie between two."""
    approximate: bool
    """Whether the number was read off a figure."""
    is_bound: bool
    """Whether the paper says no more than that it is above `value`."""
    score: str | None
    """The score of ours that counts alike, as a trace column; None where there is none."""
    preset: str | None
    """The `experiment=` that runs this row here; None where there is none."""
    overrides: tuple[str, ...] = ()
    """What the paper's method is run with beside its preset on this dataset."""

    @property
    def row(self) -> str:
        """The row it stands in, in words: `SRP w/o reference (GPT-3.5)`."""
        return " ".join(
            [self.method, *([self.variant] if self.variant else []), *([f"({self.model})"] if self.model else [])]
        )

    def __str__(self) -> str:
        """The number as it is printed: `78.6`, `≈65`, `≈55–57`, `>95`."""
        sign = ">" if self.is_bound else "≈" if self.approximate else ""
        decimals = 0 if sign else 1
        upper = "" if self.upper is None else f"–{self.upper:.{decimals}f}"
        return f"{sign}{self.value:.{decimals}f}{upper}"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _About(_Part):
    about: float
    to: float | None = None


class _Above(_Part):
    above: float


class _Column(_Part):
    dataset: str | None = None
    subset: str | None = None
    metric: str | None = None
    score: str | None = None
    overrides: tuple[str, ...] = ()


class _Row(_Part):
    method: str
    variant: str | None = None
    model: str | None = None
    preset: str | None = None
    values: list[float | _About | _Above | None]


class _Table(_Part):
    paper: str
    table: str
    section: str
    metric: str | None = None
    score: str | None = None
    columns: Annotated[list[_Column], Field(min_length=1)]
    rows: Annotated[list[_Row], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(f"{row.method} has {len(row.values)} values for {len(self.columns)} columns")
        if any(not (column.metric or self.metric) for column in self.columns):
            raise ValueError(f"{self.table}: neither the table nor each of its columns names a metric")
        return self

    def figures(self) -> Iterator[Figure]:
        for row in self.rows:
            for column, value in zip(self.columns, row.values, strict=True):
                if value is not None:
                    yield self._figure(row, column, value)

    def _figure(self, row: _Row, column: _Column, value: float | _About | _Above) -> Figure:
        match value:
            case _About():
                number, upper = value.about, value.to
            case _Above():
                number, upper = value.above, None
            case _:
                number, upper = value, None
        return Figure(
            paper=self.paper,
            table=self.table,
            method=row.method,
            variant=row.variant,
            model=row.model,
            dataset=column.dataset,
            subset=column.subset,
            metric=column.metric or self.metric or "",
            value=number,
            upper=upper,
            approximate=isinstance(value, _About),
            is_bound=isinstance(value, _Above),
            score=column.score or self.score,
            preset=row.preset,
            overrides=column.overrides if row.method == self.paper else (),
        )


@cache
def published_figures() -> tuple[Figure, ...]:
    """Every figure of every table, in the order of the file."""
    tables = TypeAdapter(list[_Table]).validate_python(yaml.safe_load(_FILE.read_text(encoding="utf-8")))
    return tuple(figure for table in tables for figure in table.figures())
