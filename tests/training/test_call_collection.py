"""`kgqa collect calls`: the calls of real runs with the oracle become fine-tuning data."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.cli.main import main
from pipeline.config import default
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from pipeline.errors import StorageError, UserError
from pipeline.llm.prompt import Message
from pipeline.methods.arg.tokens import find_tokens
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import RecordedCalls
from pipeline.training.call_collection import Report, Selection, read_calls
from pipeline.training.labelled import TrainingSource
from pipeline.training.rows import write_rows

WORLD = ("dataset.triples=2000", "dataset.split=train", "run.limit=24", "llm=oracle", "llm.prompt_style=inputs_only")


def run(folder: Path, *configurations: str) -> RunFolder:
    """Run one configuration for each text of overrides."""
    overrides = [(*WORLD, *words.split(), f"run.dir={folder}") for words in configurations]
    execute([Configuration(words, config.compose(words)) for words in overrides], Console(quiet=True))
    return RunFolder(folder)


@pytest.fixture(scope="module")
def srp(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return run(tmp_path_factory.mktemp("srp"), "method=srp method.num_references=0")


@pytest.fixture(scope="module")
def arg(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A method whose prompts begin the model's turn, and that scores choices."""
    return run(tmp_path_factory.mktemp("arg"), "method=arg method.probabilities=exact")


@pytest.fixture(scope="module")
def erring(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with unreadable replies and with wrong answers."""
    words = "method=srp llm.malformed_rate=0.3 llm.error_rate=0.2 budget.max_llm_calls=6"
    return run(tmp_path_factory.mktemp("erring"), words)


def collect(
    *folders: RunFolder, correct_only: bool = True, merged: bool = False, **source: Any
) -> tuple[list[dict[str, Any]], Report]:
    report = Report()
    rows = read_calls(
        folders,
        default(TrainingSource, **source),
        default(Selection, correct_only=correct_only, merge_continuations=merged),
        report,
    )
    return list(rows), report


def recorded(folder: RunFolder) -> dict[str, tuple[tuple[Message, ...], str, str]]:
    """The prompt, the completion and the role of each call, by its key."""
    run = RecordedCalls(folder.path)
    ids = traces(folder)["question_id"]
    calls = [call for id in ids for call in run.calls(id).values()]
    return {call.key: (run.messages(call), call.completion.text, call.role) for call in calls}


def traces(folder: RunFolder) -> pl.DataFrame:
    return pl.concat(pl.read_parquet(shard) for shard in folder.traces)


def steps(folder: RunFolder) -> pl.DataFrame:
    frame = traces(folder).select("question_id", "status", "hits_at_1", pl.col("steps"))
    return frame.explode("steps").unnest("steps", separator=".").filter(pl.col("steps.kind") == "llm")


@pytest.mark.parametrize("method", ["srp", "arg"])
def test_a_row_holds_the_prompt_and_the_reply_of_a_call(method: str, request: pytest.FixtureRequest) -> None:
    folder: RunFolder = request.getfixturevalue(method)
    rows, _ = collect(folder)
    known = Counter((messages, text, role) for messages, text, role in recorded(folder).values())
    assert rows
    for row in rows:
        assert list(row) == ["id", "dataset", "split", "role", "messages", "text", "loss"]
        ((begin, end),) = row["loss"]
        assert end == len(row["text"])
        prefix = [Message("assistant", row["text"][:begin])] if begin else []
        sent = tuple(Message(**message) for message in row["messages"]), row["text"][begin:], row["role"]
        assert known[((*sent[0], *prefix), *sent[1:])] >= 1
        known[((*sent[0], *prefix), *sent[1:])] -= 1
        assert row["messages"][-1]["role"] == "user"
        assert (row["dataset"], row["split"]) == ("synthetic", "train")


def test_rows_hold_the_prompt_style_of_the_run(srp: RunFolder) -> None:
    rows, _ = collect(srp)
    assert {row["messages"][0]["content"] for row in rows} == {row["role"] for row in rows}
    assert {"srp.relation_check", "srp.path_generation", "srp.judge", "srp.answer"} == {row["role"] for row in rows}
    assert all("Reference" not in row["messages"][1]["content"] for row in rows)


def test_a_prefix_of_the_models_turn_carries_no_loss(arg: RunFolder) -> None:
    rows, report = collect(arg)
    prefixes = [row["text"][: row["loss"][0][0]] for row in rows if row["role"] != "arg.retrieval"]
    assert all(prefixes), "every other call continues the transcript"
    assert any(find_tokens(text) for text in prefixes), "labels that the method wrote itself"
    assert report.rejected["the call scored choices and wrote no text"]


def test_merged_calls_carry_the_same_loss_as_separate_ones(arg: RunFolder) -> None:
    apart, _ = collect(arg)
    rows, report = collect(arg, merged=True)
    assert report.rows == len(rows) < len(apart) == report.selected
    replies = Counter(
        (row["id"], row["text"][:begin], row["text"][begin:end]) for row in rows for begin, end in row["loss"]
    )
    assert replies == Counter(
        (row["id"], row["text"][:begin], row["text"][begin:]) for row in apart for begin, _ in row["loss"]
    )
    assert all(row["loss"][-1][1] == len(row["text"]) for row in rows)
    assert max(len(row["loss"]) for row in rows) > 2


def test_rejected_calls_are_counted_by_reason(erring: RunFolder) -> None:
    rows, report = collect(erring)
    calls = steps(erring)
    fine = (pl.col("status") == "ok") & (pl.col("hits_at_1") == 1)
    read = pl.col("steps.error").is_null()
    assert len(rows) == calls.filter(fine & read)["steps.key"].n_unique()
    assert report.calls == calls.height == len(rows) + report.rejected.total()
    assert report.rejected["the reply could not be read"] == calls.filter(fine & ~read).height > 0
    assert report.rejected["the question was not answered correctly"] > 0
    assert report.rejected["the question ended as budget_exhausted"] > 0
    ends = traces(erring).select("question_id", "hits_at_1")
    assert {row["id"] for row in rows} <= set(ends.filter(hits_at_1=1)["question_id"])


def test_wrongly_answered_questions_are_included_on_request(erring: RunFolder) -> None:
    rows, report = collect(erring, correct_only=False)
    assert "the question was not answered correctly" not in report.rejected
    assert len(rows) > len(collect(erring)[0])


def test_truncated_replies_are_left_out(tmp_path: Path, srp: RunFolder) -> None:
    cut = pl.element().struct.with_fields(finish_reason=pl.lit("length"))
    (tmp_path / "traces").mkdir()
    (tmp_path / "prompts").symlink_to(srp.path / "prompts")
    traces(srp).with_columns(pl.col("steps").list.eval(cut)).write_parquet(tmp_path / "traces" / "shard-00000.parquet")
    rows, report = collect(RunFolder(tmp_path), correct_only=False)
    assert (rows, set(report.rejected)) == ([], {"the reply was truncated"})


def test_a_call_is_collected_once_over_all_runs_and_configurations(srp: RunFolder, tmp_path: Path) -> None:
    both = run(tmp_path, "method=srp method.num_references=0", "method=srp method.num_references=0 method.depth=2")
    rows, report = collect(srp, both)
    alone, _ = collect(both)
    assert report.questions == 3 * 24
    assert report.rejected["repeated"] > 0
    keys = {*recorded(srp), *recorded(both)}
    assert len(rows) <= len(keys)
    assert Counter(row["text"] for row in rows) == Counter(row["text"] for row in alone), "the same calls"


def test_held_out_questions_are_left_out(srp: RunFolder, tmp_path: Path) -> None:
    frame = traces(srp)
    file = tmp_path / "held.txt"
    file.write_text(f"{frame['question'][0].upper()}\n{frame['question_id'][1]}\n")
    rows, report = collect(srp, held_out=(file,))
    assert report.rejected["the question is held out"] > 0
    assert not {row["id"] for row in rows} & set(frame["question_id"][:2])


def test_the_command_writes_the_file_and_the_report(srp: RunFolder, arg: RunFolder, tmp_path: Path) -> None:
    output = tmp_path / "data" / "calls.jsonl"
    assert main(["collect", "calls", str(srp.path), str(arg.path), f"output={output}"]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert rows == collect(srp, arg)[0]
    report = json.loads(output.with_suffix(".report.json").read_text())
    assert report["rows"] == len(rows) == report["calls"] - sum(report["rejected"].values())
    for role, of in report["roles"].items():
        own = [row for row in rows if row["role"] == role]
        prompts = [sum(len(message["content"]) for message in row["messages"]) for row in own]
        texts = [len(row["text"]) for row in own]
        assert of == {
            "calls": len(own),
            "prompt_characters": round(sum(prompts) / len(own)),
            "text_characters": round(sum(texts) / len(own)),
            "longest": max(map(sum, zip(prompts, texts, strict=True))),
        }


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match=r"rows\.jsonl cannot be written"):
        write_rows([{}], tmp_path / "taken" / "rows.jsonl")

    def rows() -> Any:
        yield {"id": "q1"}
        raise UserError("enough")

    with pytest.raises(UserError):
        write_rows(rows(), tmp_path / "rows.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_an_earlier_file_is_replaced(tmp_path: Path) -> None:
    write_rows([{"id": "q1"}, {"id": "q2"}], tmp_path / "rows.jsonl")
    write_rows([{"id": "q3"}], tmp_path / "rows.jsonl")
    assert (tmp_path / "rows.jsonl").read_text() == '{"id":"q3"}\n'
