"""Tables of what the parts of a method cost and change, from the traces of a run, as lazy dataframes."""

from __future__ import annotations

import polars as pl

from pipeline.traces.reader import HAS_REPLY, UNREADABLE

REPEATED = {"edited": "edits", "refined": "refinements", "reflected": "reflections"}
"""The decisions that a method may repeat, and what they are called."""
_KEYS = ["configuration", "question_id"]


def role_costs(steps: pl.LazyFrame) -> pl.LazyFrame:
    """Return calls, tokens, seconds and parse failures of each configuration and role, the most tokens first.

    `seconds` is the sum of the model's own time (`own_s`), `parse_failures` the share of the replies that could
    not be used.
    """
    return add_role_counts(count_roles(steps))


def count_roles(steps: pl.LazyFrame) -> pl.LazyFrame:
    """Return the counts of `role_costs` for some steps of a run, for `add_role_counts`."""
    calls = steps.filter(pl.col("kind") == "llm").group_by("configuration", "role", maintain_order=True)
    return calls.agg(
        pl.len().alias("calls"),
        pl.col("shared").sum(),
        pl.col("prompt_tokens").sum(),
        pl.col("completion_tokens").sum(),
        pl.col("own_s").sum().alias("seconds"),
        HAS_REPLY.sum().alias("replies"),
        UNREADABLE.sum().alias("unreadable"),
    )


def add_role_counts(counts: pl.LazyFrame) -> pl.LazyFrame:
    """Add up the rows of `count_roles` of all parts of a run, and return `role_costs`."""
    totals = counts.group_by("configuration", "role", maintain_order=True).agg(pl.all().sum())
    share = (pl.col("unreadable") / pl.col("replies")).fill_nan(0.0).alias("parse_failures")
    ordered = totals.sort("configuration", "prompt_tokens", "role", descending=[False, True, False])
    return ordered.with_columns(share).drop("replies", "unreadable")


def slow_lookups(steps: pl.LazyFrame, count: int = 20) -> pl.LazyFrame:
    """Return the graph lookups that took longest, with their question and their arguments."""
    columns = ("configuration", "question_id", "step", "role", "own_s", "rows", "queries", "endpoint", "query")
    return steps.filter(pl.col("kind") == "kg").select(columns).top_k(count, by="own_s").sort("own_s", descending=True)


def repetition_effects(questions: pl.LazyFrame, steps: pl.LazyFrame) -> pl.LazyFrame:
    """Return the scores of the questions with 0, 1, 2, … edits, refinements or reflections, in each configuration.

    `corrected` and `damaged` are the means of the columns of the same names: rates at which an answer before the
    reflection that was wrong became right, and the reverse; null where the method has no such answer.
    """
    decisions = steps.filter(pl.col("role").is_in(list(REPEATED)), pl.col("kind") == "decision")
    counted = decisions.group_by(*_KEYS, "role").agg(pl.len().alias("times"))
    used = counted.select("configuration", "role").unique()
    scored = questions.select(*_KEYS, "hits_at_1", "corrected", "damaged").join(used, on="configuration")
    all_times = scored.join(counted, on=[*_KEYS, "role"], how="left").with_columns(pl.col("times").fill_null(0))
    means = pl.col("hits_at_1", "corrected", "damaged").mean()
    grouped = all_times.group_by("configuration", pl.col("role").replace(REPEATED).alias("of"), "times")
    return grouped.agg(pl.len().alias("questions"), means).sort("configuration", "of", "times")


def calibration(questions: pl.LazyFrame, steps: pl.LazyFrame, bins: int = 10) -> pl.LazyFrame:
    """Return Hits@1 by the confidence of a method: ArG's in its best leaf, or PARoG's in its first tentative answer.

    ArG's scores are cut into `bins` equal ranges, from the lowest to the highest score of the configuration. Columns:
    `configuration`, `of` (`leaf score`, `tentative confidence`), `confidence` (the mean score of the range, or `low`,
    `medium`, `high`), `questions`, `hits_at_1`.
    """
    payload = pl.col("payload")
    leaf = payload.str.json_path_match("$.leaves[0][0]").cast(pl.Float64, strict=False)
    scores = steps.filter(pl.col("role") == "answered").select(*_KEYS, leaf.alias("score")).drop_nulls("score")
    low, span = pl.col("score").min(), (pl.col("score").max() - pl.col("score").min()).clip(1e-9)
    position = ((pl.col("score") - low) / span * bins).floor().clip(0, bins - 1).over("configuration")
    hits = questions.select(*_KEYS, "hits_at_1")
    agreed = (pl.len().alias("questions"), pl.col("hits_at_1").mean())
    by_score = (
        scores.with_columns(position.alias("bin"))
        .join(hits, on=_KEYS)
        .group_by("configuration", "bin")
        .agg(pl.col("score").mean().round(4).cast(pl.String).alias("confidence"), *agreed)
    )
    stated = payload.str.json_path_match("$.confidence").alias("confidence")
    first = (
        steps.filter(pl.col("role") == "tentative").select(*_KEYS, stated).group_by(_KEYS, maintain_order=True).first()
    )
    by_word = first.join(hits, on=_KEYS).group_by("configuration", "confidence").agg(*agreed)
    order = pl.col("confidence").replace_strict({"low": 0.0, "medium": 1.0, "high": 2.0}, default=-1.0)
    parts = [
        by_score.with_columns(pl.lit("leaf score").alias("of")),
        by_word.with_columns(order.alias("bin"), pl.lit("tentative confidence").alias("of")),
    ]
    columns = ("configuration", "of", "confidence", "questions", "hits_at_1")
    return pl.concat(parts, how="diagonal_relaxed").sort("configuration", "of", "bin").select(columns)
