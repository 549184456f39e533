"""Reads from the index what the pages list: filtered questions in order, and the comparison of two configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, Literal, Self, TypeAlias, get_args
from urllib.parse import quote, urlencode

import polars as pl

from pipeline.analysis.losses import STAGES
from pipeline.errors import UserError
from pipeline.kg.fingerprint import may_be_same_graph
from pipeline.suggestions import did_you_mean
from pipeline.text import agreeing, counted
from pipeline.viewer.index import OUTCOMES, RunIndex

PAGE = 50
"""Rows of one page."""
COSTS = {"calls": "model calls", "tokens": "tokens", "seconds": "seconds"}
SORTS = ("question", *COSTS, "f1")
Change: TypeAlias = Literal["differ", "gained", "lost", "both_right", "both_wrong", "all"]
CHANGES: tuple[Change, ...] = get_args(Change)
"""`gained` is right in the second configuration only, `lost` in the first only."""

_FIRST_PAGES = 20
_MOST_TYPES = 60
_LONGEST = 1000
"""Characters of a value in a query."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list of questions shows; each field is one parameter of its address. None and `""` filter nothing."""

    run: str = ""
    configuration: int | None = None
    outcome: str = ""
    stage: str = ""
    type: str = ""
    hops: int | None = None
    text: str = ""
    """A part of the id, the question, the answers or the gold answers; the case of ASCII letters does not count."""
    cost: str = "calls"
    at_least: float | None = None
    at_most: float | None = None
    sort: str = "question"
    descending: bool = False
    page: int = 1

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Self:
        """Read the parameters of an address. Raises UserError for a wrong one."""
        names = [each.name for each in fields(cls)]
        given = {name: value.strip() for name, value in query.items() if value.strip()}
        for name in given:
            if name not in names:
                raise UserError(f"there is no filter '{name[:_LONGEST]}'.{did_you_mean(name[:_LONGEST], names)}")
        choices = {"outcome": OUTCOMES, "stage": STAGES, "cost": tuple(COSTS), "sort": SORTS}
        for name, known in choices.items():
            if given.get(name, known[0]) not in known:
                raise UserError(f"{name} is wrong: it is one of {', '.join(known)}")
        values: dict[str, Any] = {
            name: value[:_LONGEST] for name, value in given.items() if isinstance(getattr(cls(), name), str)
        }
        for name in {"at_least", "at_most"} & given.keys():
            values[name] = _number(name, given[name])
        for name in {"configuration", "hops", "page"} & given.keys():
            values[name] = _whole(name, given[name])
        values["descending"] = given.get("descending") == "true"
        return cls(**values)

    def url(self, **changes: Any) -> str:
        """Return the address of the list with some fields changed; the first page unless `page` is one of them."""
        changed = replace(self, **{"page": 1, **changes})
        default = type(self)()
        given = {
            each.name: _printed(getattr(changed, each.name))
            for each in fields(self)
            if getattr(changed, each.name) != getattr(default, each.name)
        }
        return f"/?{urlencode(given)}" if given else "/"

    @property
    def predicate(self) -> pl.Expr:
        """The condition for a row of a table."""
        conditions = [
            pl.col(name) == value
            for name in ("configuration", "outcome", "stage", "type", "hops")
            if (value := getattr(self, name)) not in (None, "")
        ]
        if self.at_least is not None:
            conditions.append(pl.col(self.cost) >= self.at_least)
        if self.at_most is not None:
            conditions.append(pl.col(self.cost) <= self.at_most)
        if self.text:
            conditions.append(_has_text(self.text))
        return reduce(pl.Expr.and_, conditions, pl.lit(value=True))


def _has_text(text: str) -> pl.Expr:
    columns = (pl.col(name) for name in ("question_id", "question", "answers", "gold"))
    return pl.any_horizontal(
        each.fill_null("").str.contains_any([text], ascii_case_insensitive=True) for each in columns
    )


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not abs(number) < 1e15:
        raise UserError(f"{name} is wrong: it is a number")
    return number


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9:  # so that it fits into 32 bits
        raise UserError(f"{name} is wrong: it is a whole number from 0 on")
    return int(text)


def _printed(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def question_url(run: str, configuration: int, id: str, **parameters: object) -> str:
    """Return the address of a question: `/<run>/<configuration>/<question id>`, and what is chosen on its page."""
    given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
    path = f"/{quote(run, safe='')}/{configuration}/{quote(id, safe='')}"
    return f"{path}?{urlencode(given)}" if given else path


# The list


@dataclass(frozen=True, slots=True)
class _Page:
    """One page of rows, and the number of all rows."""

    rows: Sequence[Mapping[str, Any]]
    count: int

    @property
    def pages(self) -> int:
        """The number of pages, 1 if there is nothing to show."""
        return max(1, -(-self.count // PAGE))


@dataclass(frozen=True, slots=True)
class Listing(_Page):
    """One page of the questions that pass the filters, and counts of all that do.

    Each row has `COLUMNS` and `run`, the name of its run.
    """

    outcomes: Mapping[str, int]
    stages: Mapping[str, int]
    """Questions by the stage at which they were lost, in the order of the stages."""


def list_questions(indexes: Sequence[RunIndex], filters: Filters) -> Listing:
    """Return a page of the questions of some runs, of one if `filters.run` names it. Raises UserError."""
    chosen = [each for each in indexes if filters.run in {"", each.name}]
    if not chosen:
        raise UserError(f"there is no run '{filters.run}'.{did_you_mean(filters.run, [each.name for each in indexes])}")
    scans = [each.scan() for each in chosen]
    keys = ["row", "configuration", "outcome", "stage", *([] if filters.sort == "question" else [filters.sort])]
    tables = (
        scan.filter(filters.predicate).select(pl.lit(place, pl.Int32).alias("place"), _order(place), *keys)
        for place, scan in enumerate(scans)
    )
    found = pl.concat(tables).collect()
    shown = _page(found, filters)
    rows = shown.select("place", "row").join(_rows(scans, shown), on=["place", "row"], maintain_order="left")
    return Listing(
        [{**row, "run": chosen[row["place"]].name} for row in rows.iter_rows(named=True)],
        found.height,
        _counts(found, "outcome", OUTCOMES),
        _counts(found, "stage", STAGES),
    )


def _page(found: pl.DataFrame, filters: Filters) -> pl.DataFrame:
    """Return the places and rows of a page. The first pages need no whole sort; for others, few columns are sorted."""
    first, descending = (filters.page - 1) * PAGE, filters.descending
    if filters.sort == "question":
        order = found.lazy().select("place", "row", "order").sort("order", descending=descending)
    elif filters.page <= _FIRST_PAGES:
        order = found.lazy().sort(filters.sort, "order", descending=[descending, False], nulls_last=True)
    else:
        ranked = found.lazy().select("place", "row", "order", filters.sort).sort("order")
        order = ranked.sort(filters.sort, descending=descending, nulls_last=True, maintain_order=True)
    return order.slice(first, PAGE).collect()


def _order(place: int) -> pl.Expr:
    """Return a number by which rows are ordered by run, configuration and place in the table: one key sorts fast."""
    row = pl.col("row").cast(pl.Int64)
    return (pl.lit(place * 2**52) + pl.col("configuration").cast(pl.Int64) * 2**32 + row).alias("order")


def _rows(scans: Sequence[pl.LazyFrame], shown: pl.DataFrame) -> pl.DataFrame:
    """Return all columns of some rows of the tables."""
    parts = []
    for place, scan in enumerate(scans):
        wanted = shown.filter(pl.col("place") == place)["row"].to_list()
        parts.append(scan.filter(pl.col("row").is_in(wanted)).with_columns(pl.lit(place, pl.Int32).alias("place")))
    return pl.concat(parts).collect()


def _counts(found: pl.DataFrame, column: str, order: Sequence[str]) -> Mapping[str, int]:
    counts = dict(found.drop_nulls(column)[column].value_counts().iter_rows())
    return {name: counts[name] for name in order if name in counts}


def list_types(indexes: Sequence[RunIndex]) -> tuple[Sequence[str], Sequence[int]]:
    """Return the types and the numbers of hops that occur, the most frequent types first."""
    scans = pl.concat(each.scan().select("type", "hops") for each in indexes)
    found = scans.group_by("type", "hops").len().collect()
    types = found.drop_nulls("type").group_by("type").agg(pl.sum("len")).sort("len", "type", descending=[True, False])
    return types["type"].head(_MOST_TYPES).to_list(), found["hops"].drop_nulls().unique().sort().to_list()


# The comparison


@dataclass(frozen=True, slots=True)
class Side:
    """One configuration of a comparison."""

    index: RunIndex
    configuration: int

    @property
    def key(self) -> str:
        """Its name in an address: `<run>/<configuration>`."""
        return f"{self.index.name}/{self.configuration}"


def find_side(indexes: Sequence[RunIndex], key: str) -> Side:
    """Return the configuration that `<run>/<configuration>` names. Raises UserError."""
    name, _, number = key[:_LONGEST].rpartition("/")
    index = next((each for each in indexes if each.name == name), None)
    if (
        index is None
        or not (number.isascii() and number.isdecimal())
        or len(number) > 9
        or int(number) not in range(index.configurations)
    ):
        raise UserError(f"there is no configuration '{key[:_LONGEST]}': name one as RUN/NUMBER")
    return Side(index, int(number))


@dataclass(frozen=True, slots=True)
class Comparison(_Page):
    """One page of the questions that two configurations share, and counts of all of them.

    Each row has `question_id`, `question`, and the other columns of both, those of the second with `_after`.
    """

    changes: Mapping[str, int]
    warnings: Sequence[str]
    """Why rows may compare different things."""


def compare(before: Side, after: Side, change: Change, text: str, page: int) -> Comparison:
    """Compare two configurations question by question. A question that failed, or has no gold answers, is not right."""
    columns = ["question_id", "question", "answers", "gold", "outcome", "stage", "calls", "tokens"]
    first, second = (
        side.index.scan().filter(pl.col("configuration") == side.configuration) for side in (before, after)
    )
    joined = first.join(second.select(columns), on="question_id", suffix="_after")
    both = joined.select(*columns, pl.col("^.*_after$"), "row").collect()
    was, now = both["outcome"] == "right", both["outcome_after"] == "right"
    masks = {
        "differ": was != now,
        "gained": ~was & now,
        "lost": was & ~now,
        "both_right": was & now,
        "both_wrong": ~was & ~now,
        "all": was | ~was,
    }
    shown = both.filter(masks[change])
    shown = (shown.filter(_has_text(text)) if text else shown).sort("row")
    counts = {name: int(mask.sum()) for name, mask in masks.items()}
    rows = shown.slice((page - 1) * PAGE, PAGE).to_dicts()
    return Comparison(rows, shown.height, counts, list(_warnings(before, after, both)))


def _warnings(before: Side, after: Side, both: pl.DataFrame) -> Iterator[str]:
    """Say what the two configurations did not have in common, by the rows of the questions that they share."""
    gold, gold_after = (pl.col(name).str.split("; ").list.sort() for name in ("gold", "gold_after"))
    is_other = (pl.col("question") != pl.col("question_after")) | gold.ne_missing(gold_after)
    if changed := both.filter(is_other).height:
        yield f"{counted(changed, 'question')} {agreeing('have', changed)} another text or other gold answers in B"
    graphs = [side.index.metadata["served"][side.configuration]["graph"] for side in (before, after)]
    if both.height and not may_be_same_graph(*graphs):
        yield "the two asked different graphs"
