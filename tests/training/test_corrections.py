"""`kgqa collect corrections`: a model's own runs become training data, with the replies that the oracle would give."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.cli.main import main
from pipeline.training.sft.texts import read_texts

WORLD = ("dataset.triples=2000", "dataset.split=train", "run.limit=12", "method=srp", "method.num_references=0")
ERRING = ("llm=oracle", "llm.error_rate=0.4", "llm.malformed_rate=0.1", "llm.prompt_style=inputs_only")


@pytest.fixture(scope="module")
def erring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a model that often errs."""
    folder = tmp_path_factory.mktemp("erring")
    assert main(["evaluate", *WORLD, *ERRING, f"run.dir={folder}"]) == 0
    return folder


def collect(run: Path, output: Path, *words: str) -> list[dict[str, Any]]:
    assert main(["collect", "corrections", str(run), f"output={output}", *words]) == 0
    return [json.loads(line) for line in output.read_text("utf-8").splitlines()]


def calls(run: Path) -> pl.DataFrame:
    """The distinct model calls of a run."""
    traces = pl.concat(pl.read_parquet(shard) for shard in sorted(run.glob("traces/*.parquet")))
    steps = traces.select("steps", "texts").explode("steps", "texts").unnest("steps", "texts")
    return steps.filter(pl.col("kind") == "llm").unique("key")


def test_every_call_of_the_run_is_compared(erring: Path, tmp_path: Path) -> None:
    rows = collect(erring, tmp_path / "all.jsonl", "collect.right_share=1")
    report = json.loads((tmp_path / "all.report.json").read_text("utf-8"))
    made = calls(erring)
    assert sum(role["calls"] for role in report["roles"].values()) == len(made)
    assert {row["said"] for row in rows} == set(made["completion"])
    assert all(row["messages"][0] == {"role": "system", "content": row["role"]} for row in rows)


def test_the_report_counts_the_rows_that_are_written(tmp_path: Path) -> None:
    """Two configurations make the same calls, which are written once."""
    run = tmp_path / "two"
    assert main(["sweep", *WORLD, *ERRING, "method.retries=0,1", f"run.dir={run}"]) == 0
    rows = collect(run, tmp_path / "rows.jsonl", "collect.right_share=1")
    report = json.loads((tmp_path / "rows.report.json").read_text("utf-8"))
    assert {name: role["rows"] for name, role in report["roles"].items() if role["rows"]} == Counter(
        row["role"] for row in rows
    )
    assert len(rows) < sum(role["calls"] for role in report["roles"].values()), "else no call is repeated"


def test_a_reply_of_the_teacher_that_cannot_be_read_teaches_nothing(erring: Path, tmp_path: Path) -> None:
    unreadable = ("llm=oracle", "llm.malformed_rate=0.5", "collect.right_share=1")
    rows = collect(erring, tmp_path / "some.jsonl", *unreadable)
    roles = json.loads((tmp_path / "some.report.json").read_text("utf-8"))["roles"].values()
    left_out = sum(role["left_out"] for role in roles)
    assert left_out > 0, "else this says nothing"
    assert sum(role["calls"] for role in roles) == len(calls(erring)) - left_out
    assert len(rows) <= len(calls(erring)) - left_out


def test_only_errors_are_selected_without_a_share_of_right_replies(erring: Path, tmp_path: Path) -> None:
    rows = collect(erring, tmp_path / "wrong.jsonl", "collect.right_share=0")
    report = json.loads((tmp_path / "wrong.report.json").read_text("utf-8"))
    wrong = sum(role["wrong"] for role in report["roles"].values())
    assert 0 < len(rows) <= wrong < sum(role["calls"] for role in report["roles"].values())
    assert all(row["said"] != row["text"] for row in rows)


def test_a_perfect_model_is_corrected_only_where_it_uses_what_prompts_do_not_show(tmp_path: Path) -> None:
    perfect, ahead = tmp_path / "perfect", tmp_path / "ahead"
    assert main(["evaluate", *WORLD, "llm=teacher", f"run.dir={perfect}"]) == 0
    assert main(["evaluate", *WORLD, "llm=oracle", f"run.dir={ahead}"]) == 0
    for run in (perfect, ahead):
        teacher = "llm=teacher" if run == perfect else "llm=oracle"
        assert collect(run, tmp_path / "none.jsonl", "collect.right_share=0", teacher) == []
    assert collect(ahead, tmp_path / "some.jsonl", "collect.right_share=0") != []


def test_the_model_of_the_run_need_not_be_there(llama: Path, tmp_path: Path) -> None:
    """Its replies are found by the prompts: the limit of its tokens is a part of its name, and of every call key."""
    run, output = tmp_path / "llama", tmp_path / "rows.jsonl"
    model = ("llm=embedded", f"llm.model={llama}", "llm.max_new_tokens=8", "llm.prompt_style=inputs_only")
    assert main(["evaluate", *WORLD, *model, "run.limit=2", f"run.dir={run}"]) == 0
    rows = collect(run, output)
    assert {row["said"] for row in rows} <= set(calls(run)["completion"])
    assert {"srp.path_generation", "srp.answer"} <= {row["role"] for row in rows}
    assert len(list(read_texts([output]))) == len(rows)


def test_held_out_questions_and_test_splits_are_left_out(
    erring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = collect(erring, tmp_path / "rows.jsonl")
    held_out = tmp_path / "ids.txt"
    held_out.write_text(f"{rows[0]['id']}\n", encoding="utf-8")
    kept = collect(erring, tmp_path / "fewer.jsonl", f"material.held_out=[{held_out}]")
    assert kept == [row for row in rows if row["id"] != rows[0]["id"]]
    run = tmp_path / "test"
    assert main(["evaluate", *WORLD, *ERRING, "dataset.split=test", "run.limit=1", f"run.dir={run}"]) == 0
    assert main(["collect", "corrections", str(run), f"output={tmp_path / 'x.jsonl'}"]) == 2
    assert "is for evaluation, not for training" in capsys.readouterr().err
