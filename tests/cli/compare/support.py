"""Runs to compare, and what `kgqa compare` says about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from tests.cli.conftest import Kgqa

WORLD = ("dataset.triples=2000", "evaluation.bootstrap_resamples=1000", "engine.shard_size=10")
CUSTOM = ("dataset=custom", "dataset.triples=graph.tsv", "dataset.meta=[source]", "evaluation.bootstrap_resamples=1000")


def evaluate(kgqa: Kgqa, folder: str | Path, *words: str) -> None:
    ran = kgqa("evaluate", *WORLD, f"run.dir={folder}", *words)
    assert ran.code == 0, ran.err


def figures(kgqa: Kgqa, *words: str | Path) -> dict[str, Any]:
    """The JSON document that `json=true` prints."""
    shown = kgqa("compare", *words, "json=true")
    assert shown.code == 0, shown.err
    document: dict[str, Any] = json.loads(shown.out)
    return document


def rows(run: Path, *columns: str) -> pl.DataFrame:
    return pl.read_parquet(run / "traces" / "*.parquet").select("question_id", *columns).sort("question_id")


def write_family(questions: int, *, sources: int = 0, text: str = "Who is the child of") -> None:
    """A graph of parents with one child each, and a question about each parent."""
    Path("graph.tsv").write_text("".join(f"P{number}\tchild\tC{number}\n" for number in range(questions)))
    lines = [
        {
            "id": f"q{number}",
            "question": f"{text} P{number}?",
            "topic_entities": [f"P{number}"],
            "answers": [f"C{number}"],
            **({"source": f"s{number % sources}"} if sources else {}),
        }
        for number in range(questions)
    ]
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, lines)))


def run_family(kgqa: Kgqa, folder: str, *words: str) -> None:
    ran = kgqa("evaluate", *CUSTOM, "dataset.questions=questions.jsonl", f"run.dir={folder}", *words)
    assert ran.code == 0, ran.err
