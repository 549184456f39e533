"""Groups of questions by the fields of their `meta`, by which scores, losses and differences are given."""

from __future__ import annotations

from typing import Any

import orjson
import polars as pl

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


def _as_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()
