"""Differences between configurations by a property of the questions, such as the gain by query type (§9.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from rich.table import Table

from pipeline.analysis.paired import LOST, WON, Clusters, RunConfiguration, difference, exact_p, pair_scores, read_rows
from pipeline.errors import UserError
from pipeline.evaluation.question_groups import meta_fields, meta_groups
from pipeline.evaluation.score_tables import PValue, percent, plain_table
from pipeline.evaluation.statistics import Difference
from pipeline.suggestions import did_you_mean
from pipeline.text import counted

_COLUMNS = ("query_type", "type", "level", "hops")
"""The trace columns that questions can be grouped by; the others are fields of their `meta`."""


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """The difference between a configuration and the base on the questions of one group. Scores are in [0, 1]."""

    configuration: RunConfiguration
    group: str
    questions: int
    base: float
    other: float
    difference: Difference
    """Other minus base."""
    won: int
    """Questions with a higher score than the base."""
    lost: int
    p_value: float
    """Of this group alone: exact if all scores are 0 or 1, otherwise by bootstrap."""

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON output."""
        return {
            "name": self.configuration.name,
            "group": self.group,
            "questions": self.questions,
            "base": self.base,
            "score": self.other,
            "difference": self.difference.mean,
            "interval": [self.difference.low, self.difference.high],
            "won": self.won,
            "lost": self.lost,
            "p_value": self.p_value,
        }


def compare_by(
    base: RunConfiguration, others: Sequence[RunConfiguration], *, by: str, score: str, clusters: Clusters | None
) -> list[GroupDifference]:
    """Compare each configuration with the base in each group of questions with one value of a property.

    Raises UserError if no question of the base has the property.
    """
    values = _values(base, by).drop_nulls()
    if values.is_empty():
        known = ", ".join(name for name in _known(base) if name != by)
        raise UserError(f"by={by}: no question of {base.name} has this property. Known: {known}")
    groups = values.with_columns(pl.col(by).cast(pl.String)).partition_by(by, as_dict=True)
    found: list[GroupDifference] = []
    for other in others:
        pairs = pair_scores(base.rows, other.rows, score)
        for (group,), questions in sorted(groups.items()):
            pair = pairs.join(questions, on="question_id", how="semi", maintain_order="left")
            if pair.height:
                found.append(_of_group(base, other, str(group), pair, clusters))
    return found


def require_property(base: RunConfiguration, by: str) -> None:
    """Raise UserError unless the questions of the base can be grouped by a property."""
    if by not in (known := _known(base)):
        raise UserError(f"there is no by={by}.{did_you_mean(by, known)} Known: {', '.join(known)}")


def differing_labels(
    base: RunConfiguration, others: Sequence[RunConfiguration], by: str
) -> dict[RunConfiguration, int]:
    """Count the questions that have another value of a property in another run than in that of the base.

    A run has one value for each question, so one configuration of each other run is compared.
    """
    values = _values(base, by)
    of_runs = {each.folder: each for each in reversed(others) if each.folder != base.folder}
    counts: dict[RunConfiguration, int] = {}
    for each in of_runs.values():
        both = values.join(_values(each, by), on="question_id", suffix="_other")
        counts[each] = both.filter(pl.col(by).ne_missing(pl.col(f"{by}_other"))).height
    return counts


def group_table(
    differences: Sequence[GroupDifference], *, by: str, score: str, base: RunConfiguration, left_out: int
) -> Table:
    """Build the table of the gain by group, with a section for each configuration but those that are `left_out`."""
    coverage = f"{100 * base.scoring.confidence:g} % paired bootstrap intervals, too narrow for few questions"
    title = f"{score} by {by}, compared with {base.name}, {base.method}, answered by {base.answered_by}"
    caption = (
        f"percent and percentage points, {coverage}; none where all questions of a group changed alike; flips: "
        "questions won and lost; p: of a group alone, not corrected for their number"
    )
    if left_out:
        caption += f"; {counted(left_out, 'configuration')} left out, as above"
    table = plain_table(title, caption)
    for heading in ("#", "method", by):
        table.add_column(heading, overflow="fold")
    for heading in ("questions", "base", "score", "gain", "flips", "p"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in differences:
        change = each.difference
        table.add_row(
            each.configuration.name,
            each.configuration.method,
            each.group,
            f"{each.questions:,}",
            percent(each.base),
            percent(each.other),
            f"{change.points} {change.interval_points}".rstrip(),
            f"+{each.won:,} -{each.lost:,}",
            PValue(each.p_value).plain,
        )
    return table


def _known(base: RunConfiguration) -> list[str]:
    """Return the properties by which the questions of the base can be grouped."""
    fields = meta_groups(read_rows(base.folder, ["meta"])[base.number])
    return list(dict.fromkeys((*_COLUMNS, *(name for name in fields if name != "question_id"))))


def _values(configuration: RunConfiguration, by: str) -> pl.DataFrame:
    """Return `question_id` and the property of each question, null where it has none."""
    if by in _COLUMNS:
        return read_rows(configuration.folder, [by])[configuration.number]
    rows = read_rows(configuration.folder, ["meta"])[configuration.number]
    values = meta_fields(rows).get(by)
    return rows.select("question_id", pl.lit(None, pl.String).alias(by) if values is None else values.alias(by))


def _of_group(
    base: RunConfiguration, other: RunConfiguration, group: str, pair: pl.DataFrame, clusters: Clusters | None
) -> GroupDifference:
    sources = clusters.labels.filter(pl.col("question_id").is_in(pair["question_id"].implode())) if clusters else None
    has_sources = sources is not None and sources["source"].n_unique() > 1
    before, after = (float(pair[name].to_numpy().mean()) for name in ("base", "other"))
    used = clusters if has_sources else None
    change, exact = difference(pair, used, base.scoring), exact_p(pair, used)
    p_value = change.p_value if exact is None else exact
    won, lost = (int(pair.select(sign).item()) for sign in (WON.sum(), LOST.sum()))
    return GroupDifference(other, group, pair.height, before, after, change, won, lost, p_value)
