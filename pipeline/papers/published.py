"""Reads the numbers that the papers publish (specification §11) from `published.yaml`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from pipeline.text import load_yaml

_FILE = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published number."""

    paper: str
    """The paper that publishes it: `SRP`, `ArG`, `PARoG`, `R3-Cycle`, or that of a baseline such as `PoG`."""
    table: str
    """Our name of the table in the paper."""
    method: str
    """The paper's name of the method, or `model alone`."""
    variant: str | None
    """An ablation or a parameter value; None for the unchanged method."""
    model: str | None
    """The language model; None if the paper does not name it."""
    dataset: str | None
    """Our name of the dataset; None if the paper does not name it."""
    subset: str | None
    """The part of the dataset, such as a type of question or a domain; None for all of it."""
    metric: str
    """The paper's name of the metric."""
    value: float
    """In percent, or in the unit that the metric names."""
    upper: float | None
    """The upper end, if the paper only gives a range."""
    approximate: bool
    """Whether the number was read off a plot."""
    is_bound: bool
    """Whether the paper only says that the number is above `value`."""
    score: str | None
    """Our equivalent score, as a trace column; None if there is none."""
    preset: str | None
    """The `experiment=` that reproduces this row; None if there is none."""
    reading: str | None = None
    """What the preset assumes where the paper does not say it, if several presets run the row; None for one."""
    seeds: int = 1
    """The number of runs whose mean the paper prints."""
    cost: str | None = None
    """The trace column that holds it, if it is a cost per question and no score."""
    reason: str | None = None
    """Why the row has no number of ours, if that is not a property of its system."""

    @property
    def row(self) -> str:
        """The name of its table row, such as `SRP w/o reference (GPT-3.5)`."""
        words = [self.method, self.variant, f"({self.model})" if self.model else None]
        return ", ".join(filter(None, [" ".join(filter(None, words)), self.reading]))

    def __str__(self) -> str:
        """Return the number as the paper prints it: `78.6`, `≈65`, `≈55–57`, `>95`."""
        sign = ">" if self.is_bound else "≈" if self.approximate else ""
        decimals = 0 if sign else 1
        upper = "" if self.upper is None else f"–{self.upper:.{decimals}f}"
        return f"{sign}{self.value:.{decimals}f}{upper}"


class Part(BaseModel):
    """A part of a file about the papers: no key is ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _About(Part):
    about: float
    to: float | None = None


class _Above(Part):
    above: float


class _Column(Part):
    dataset: str | None = None
    subset: str | None = None
    metric: str | None = None
    score: str | None = None
    cost: str | None = None
    reason: str | None = None


class _Row(Part):
    method: str
    variant: str | None = None
    model: str | None = None
    preset: str | None = None
    readings: dict[str, str] = {}
    reason: str | None = None
    values: list[float | _About | _Above | None]


class _Table(Part):
    paper: str
    table: str
    section: str
    metric: str | None = None
    score: str | None = None
    seeds: int = 1
    columns: Annotated[list[_Column], Field(min_length=1)]
    rows: Annotated[list[_Row], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(f"{row.method} has {len(row.values)} values for {len(self.columns)} columns")
        if any(not (column.metric or self.metric) for column in self.columns):
            raise ValueError(f"{self.table}: neither the table nor each of its columns names a metric")
        told = any(row.preset or row.readings for row in self.rows)
        if told and not all(self.score or column.score or column.cost or column.reason for column in self.columns):
            raise ValueError(f"{self.table}: a column has neither a score nor a cost, and no reason")
        return self

    def figures(self) -> Iterator[Figure]:
        for row in self.rows:
            for preset, reading in row.readings.items() or [(row.preset, None)]:
                for column, value in zip(self.columns, row.values, strict=True):
                    if value is not None:
                        yield replace(self._figure(row, column, value), preset=preset, reading=reading)

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
            seeds=self.seeds,
            cost=column.cost,
            reason=row.reason or column.reason,
        )


@cache
def published_figures() -> tuple[Figure, ...]:
    """Return every figure of every table, in the order of the file."""
    tables = TypeAdapter(list[_Table]).validate_python(load_yaml(_FILE.read_text(encoding="utf-8")))
    return tuple(figure for table in tables for figure in table.figures())
