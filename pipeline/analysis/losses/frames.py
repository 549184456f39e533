"""Tables of losses: one row per wrong question, shares by configuration and type, and flips between configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from pipeline.analysis.losses.stage_names import STAGES
from pipeline.analysis.losses.stage_rules import LOSS_COLUMNS, find_loss
from pipeline.errors import UserError
from pipeline.evaluation.question_groups import meta_groups
from pipeline.suggestions import did_you_mean
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards

_KEYS = ("point", "question", "type", "level", "hops", "query_type", "dataset")
_SCHEMA: Mapping[str, Any] = {
    "configuration": pl.Int32,
    "question_id": pl.String,
    "question": pl.String,
    "method": pl.String,
    "dataset": pl.String,
    "type": pl.String,
    "level": pl.String,
    "hops": pl.Int32,
    "query_type": pl.String,
    "right": pl.Boolean,
    "stage": pl.Enum(STAGES),
    "reason": pl.String,
    "hop": pl.Int32,
    "step": pl.Int32,
    "role": pl.String,
    "departure": pl.String,
}
TRACE_COLUMNS = tuple(dict.fromkeys((*_KEYS, *LOSS_COLUMNS)))
"""The columns of the traces that `loss_rows` reads."""
GROUPS = ("configuration", "method", "dataset", "type", "level", "hops", "query_type")
"""The columns by which shares can be given."""

_OF_GROUPS = ("questions", "wrong", "lost", "share")
"""The columns of tables of groups: no group can have one of these names."""


def scan_losses(folder: RunFolder, indices: Sequence[int]) -> pl.LazyFrame:
    """Return one row per configuration and question that has gold answers; `stage` is null if its answer is right.

    The shards are read one after the other, so a run may be larger than memory. Prompts and completions are not read.
    Collecting it raises UserError like `read_shards`.
    """

    def read(
        wanted: list[str] | None, predicate: pl.Expr | None, limit: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        for rows in read_shards(folder, TRACE_COLUMNS, indices=indices):
            frame = loss_rows(rows)
            kept = frame if predicate is None else frame.filter(predicate)
            kept = kept if wanted is None else kept.select(wanted)
            yield kept if limit is None else kept.head(limit)
            if limit is not None and (limit := limit - kept.height) <= 0:
                return

    return register_io_source(read, schema=dict(_SCHEMA))


def selecting_configurations(folder: RunFolder, indices: Sequence[int]) -> set[int]:
    """Return the numbers of the configurations in whose trails a method has recorded what it kept or dropped."""
    event = pl.col("trail").struct.field("event")
    shards = read_shards(folder, ["point", "trail"], indices=indices)
    return {number for rows in shards for number in rows.explode("trail").filter(event.is_in(["kept", "cut"]))["point"]}


def loss_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `scan_losses` for some rows of the traces, which have the `TRACE_COLUMNS`."""
    has_gold = pl.col("gold").list.len() > 0  # evaluation.empty_gold=strict_empty scores questions without gold, too
    scored = rows.filter(pl.col("hits_at_1").is_not_null() & has_gold).select(TRACE_COLUMNS)
    return pl.DataFrame(list(map(_loss_row, scored.iter_rows(named=True))), dict(_SCHEMA), orient="row")


def _loss_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    loss = find_loss(row)
    identity = (row["point"], *(row[name] for name in list(_SCHEMA)[1:9]))
    if loss is None:
        return (*identity, True, *(None,) * 6)
    steps = row["steps"] or ()
    role = steps[loss.step]["role"] if loss.step is not None and loss.step < len(steps) else None
    return (*identity, False, loss.stage, loss.reason, loss.hop, loss.step, role, loss.departure)


def add_groups(losses: pl.LazyFrame, folder: RunFolder, by: Sequence[str]) -> pl.LazyFrame:
    """Add a column for each group in `by` that is a field of the questions' `meta`.

    Raises UserError for a group by which no breakdown of the run shows scores.
    """
    wanted = [name for name in by if name not in GROUPS]
    if not wanted:
        return losses
    rows = pl.concat(read_shards(folder, ["point", "question_id", "meta"]))
    taken = {*_SCHEMA, *_OF_GROUPS}
    fields = {name: values.alias(name) for name, values in meta_groups(rows).items() if name not in taken}
    for name in wanted:
        _require_group(name, (*GROUPS, *fields))
    labels = rows.select(pl.col("point").alias("configuration"), "question_id", *(fields[name] for name in wanted))
    return losses.join(labels.lazy(), on=["configuration", "question_id"], how="left")


def _require_group(name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise UserError(f"there is no group '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}")


def loss_shares(losses: pl.LazyFrame, by: Sequence[str] = ("configuration",), *, reasons: bool = False) -> pl.LazyFrame:
    """Return the share of questions lost at each stage, and for each reason, in each group.

    Columns: those of `by`, `stage`, with `reasons` also `reason`, `lost` (questions), `questions` (all of the group,
    right ones included) and `share`. `by` may name one of the `GROUPS`, or a column that was added to the losses.
    Raises UserError for an unknown group.
    """
    if isinstance(by, str):
        raise UserError(f"by={by!r} should be a list of groups, such as [{by!r}]")
    added = [name for name in losses.collect_schema().names() if name not in _SCHEMA]
    for name in by:
        _require_group(name, (*GROUPS, *added))
    detail = ["stage", "reason"] if reasons else ["stage"]
    groups = losses.group_by(by).agg(pl.len().alias("questions")) if by else losses.select(pl.len().alias("questions"))
    lost = losses.filter(~pl.col("right")).group_by(*by, *detail).agg(pl.len().alias("lost"))
    joined = lost.join(groups, on=by, nulls_equal=True) if by else lost.join(groups, how="cross")
    return joined.with_columns((pl.col("lost") / pl.col("questions")).alias("share")).sort(
        *by, "stage", pl.col("lost"), descending=[*(False for _ in by), False, True], nulls_last=True
    )


def clusters(losses: pl.LazyFrame, *, by_path: bool = True, across: bool = False) -> pl.LazyFrame:
    """Group the wrong questions of each configuration that were lost in the same way, the largest group first.

    With `by_path`, only those that left the same gold path at the same place. With `across`, of all configurations
    together. Columns: `configuration` (with `across` that of the example), `stage`, `reason`, `role`, with `by_path`
    also `departure`, `questions`, and `example`, the first question id of the group; with `across` also
    `configurations`, the number of those in the group.
    """
    way = ["stage", "reason", "role", *(["departure"] if by_path else [])]
    keys = way if across else ["configuration", *way]
    groups = losses.filter(~pl.col("right")).sort("question_id", "configuration").group_by(keys, maintain_order=True)
    configuration = pl.col("configuration")
    # Configurations may have other datasets, with the same ids.
    question = pl.struct("question_id", "question") if across else pl.col("question_id")
    counted = groups.agg(
        question.n_unique().alias("questions"),
        pl.col("question_id").first().alias("example"),
        *([configuration.first(), configuration.n_unique().alias("configurations")] if across else []),
    )
    counts = ["questions", *(["configurations"] if across else [])]
    descending = [*(True for _ in counts), *(False for _ in keys)]
    return counted.sort([*counts, *keys], descending=descending, nulls_last=True)


def flips(before: pl.LazyFrame, after: pl.LazyFrame) -> pl.LazyFrame:
    """Return the questions that exactly one of two configurations answers right.

    Columns: `question_id`, `type`, `hops`, `gained` (right in `after` only), and the `stage`, `reason`, `role`,
    `departure` at which the wrong one parted from the right one.
    """
    detail = ["stage", "reason", "role", "departure", "step"]
    first = before.select("question_id", "type", "hops", "right", *detail)
    second = after.select("question_id", "right", *detail)
    both = first.join(second, on="question_id", suffix="_after").filter(pl.col("right") != pl.col("right_after"))
    parted = (
        pl.when(pl.col("right")).then(pl.col(f"{name}_after")).otherwise(pl.col(name)).alias(name) for name in detail
    )
    return both.select("question_id", "type", "hops", pl.col("right_after").alias("gained"), *parted).sort(
        "gained", "stage", "question_id"
    )
