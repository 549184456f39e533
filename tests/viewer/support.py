"""Runs for the tests of the viewer: one of every method, and one with hostile texts."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
from rich.console import Console

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from tests import support
from tests.support import rewrite_shard

METHODS = ("srp", "arg", *(method for method in support.METHODS if method not in ("srp", "arg", "cot")), "cot")
"""All methods. The tests compare the first two, and the first step of the last one is a call."""
QUESTIONS = 12
MARKUP = (
    "</pre></title><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">{{ 7 * 7 }}"
)
CONTROL = "a\u202eb\u2066c\x1b[31md\x00e"
HOSTILE = f"{MARKUP} {CONTROL}"
LONG = 200_000
"""Characters of the completions of the hostile run."""


def make_run(folder: Path, *, methods: tuple[str, ...] = METHODS, questions: int = QUESTIONS) -> Path:
    """Answer the same questions with each method, with an oracle that errs."""
    words = ("llm=oracle", "llm.error_rate=0.3", "dataset.triples=2000", f"run.limit={questions}")
    more = ("engine.shard_size=4", "evaluation.bootstrap_resamples=100", f"run.dir={folder}")
    each = [(f"method={method}", *words, *more) for method in methods]
    execute([Configuration(own, config.compose(own)) for own in each], Console(quiet=True))
    return folder


def make_hostile(run: Path, folder: Path) -> Path:
    """Copy a run, and put hostile texts wherever a model, a dataset or a server may put one.

    The completions of the last configuration are long.
    """
    shutil.copytree(run, folder)
    for shard in (folder / "traces").iterdir():
        rows = pl.read_parquet(shard)
        is_last = pl.col("point") == len(METHODS) - 1
        parts = [_hostile(rows.filter(~is_last), HOSTILE), _hostile(rows.filter(is_last), HOSTILE + "x" * LONG)]
        rewrite_shard(shard, pl.concat(parts))
    return folder


def _hostile(rows: pl.DataFrame, completion: str) -> pl.DataFrame:
    hostile, text = pl.lit(HOSTILE), pl.element().struct
    written = pl.when(text.field("completion").is_not_null()).then(pl.lit(completion)).alias("completion")
    query = pl.when(text.field("query").is_not_null()).then(hostile).alias("query")
    names = (hostile.alias(name) for name in ("role", "error", "endpoint"))
    return rows.with_columns(
        (hostile + pl.col("question_id")).alias("question_id"),
        *(hostile.alias(name) for name in ("question", "error", "type", "dataset")),
        *(pl.col(name).list.eval(pl.element() + hostile) for name in ("answers", "gold")),
        pl.col("texts").list.eval(text.with_fields(written, query)),
        pl.col("steps").list.eval(text.with_fields(*names)),
    )
