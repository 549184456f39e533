"""Groups of questions by the fields of their `meta`, by which scores, losses and differences are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from pipeline.text import agreeing

SOURCE = pl.col("meta").str.json_path_match("$.source").alias("source")
"""The question that a question was made from, as in CWQ; null if the dataset does not say. They are not independent."""
REPEATED_COLUMNS = ("dataset", "question_id", "question", "topic_entities", "meta")
"""The trace columns that `count_repeated` reads."""
MANY_REPEATED = 0.01
"""A share of repeated questions above which intervals are too narrow."""
_MOST_GROUPS = 50
"""Fields of `meta` with more values than this are not used to group questions."""


def meta_groups(rows: pl.DataFrame) -> dict[str, pl.Series]:
    """Return each field of the questions' `meta` that has several values, but not too many, as `meta_fields` does."""
    return {field: values for field, values in meta_fields(rows).items() if 1 < values.n_unique() <= _MOST_GROUPS}


def meta_fields(rows: pl.DataFrame) -> dict[str, pl.Series]:
    """Return each field of the questions' `meta` as a column of texts."""
    metas: dict[str, dict[str, Any]] = {text: orjson.loads(text) for text in rows["meta"].unique()}
    fields = sorted({field for meta in metas.values() for field in meta})
    return {
        field: rows["meta"].replace_strict(
            {text: _as_text(meta.get(field)) for text, meta in metas.items()}, return_dtype=pl.String
        )
        for field in fields
    }


def source_labels(rows: pl.DataFrame) -> npt.NDArray[np.int64] | None:
    """Return a label per question, equal for questions with the same source; None if they have no sources in common.

    Each row has its `SOURCE`, and may stand for several `questions`. A question without a source is one of its own. If
    all questions have one source, nothing tells how much it decides.
    """
    sources = rows["source"]
    if sources.null_count() == len(sources):
        return None
    codes = sources.rank("dense").cast(pl.Int64).fill_null(0).to_numpy()
    labels = np.repeat(codes, rows["questions"].to_numpy()) if "questions" in rows.columns else codes.copy()
    alone = labels == 0
    labels[alone] = -1 - np.arange(alone.sum())
    return labels if 1 < len(np.unique(labels)) < len(labels) else None


def count_repeated(rows: pl.DataFrame) -> int:
    """Count the questions that repeat an earlier one: with its text and topic entities, and without a common source.

    `rows` has the columns `REPEATED_COLUMNS`, with a row for each question of each configuration.
    """
    questions = rows.unique(["dataset", "question_id"]).with_columns(SOURCE.fill_null(pl.col("question_id")))
    text = ["dataset", "question", "topic_entities"]
    return int(questions.select(pl.struct(*text, "source").n_unique() - pl.struct(text).n_unique()).item())


def repeated_text(repeated: int, questions: str) -> str:
    """Return a sentence about `count_repeated` of some questions."""
    return (
        f"{repeated:,} of {questions} {agreeing('repeat', repeated)} an earlier one, with its text and topic entities: "
        "intervals and tests take them for independent, unless equal questions have the same text in a field `source`"
    )


def _as_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()
