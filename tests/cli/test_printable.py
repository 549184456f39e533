"""No command writes a character that controls a terminal, whatever a run folder holds."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from rich.table import Table

from pipeline.cli.commands import COMMANDS
from pipeline.console import Console
from pipeline.text import printable, printable_json
from tests.cli.support import Kgqa
from tests.support import rewrite_shard

HOSTILE = "a\x1b]0;title\x07\x9b31m\u202eb\u2066\r\x00c"
FORBIDDEN = set("\x1b\x07\x9b\u202e\u2066\r\x00")


@pytest.fixture
def hostile(finished: Path, kgqa: Kgqa) -> str:
    """Two runs in the current folder with hostile texts in every column and name; returns the id of a question."""
    for name in ("one", "two"):
        shutil.copytree(finished, name)
        for shard in Path(name, "traces").iterdir():
            text = pl.lit(HOSTILE)
            rows = pl.read_parquet(shard).with_columns(
                text.alias("question"),
                text.alias("method"),
                text.alias("dataset"),
                text.alias("raw_answer"),
                pl.lit("failed").alias("status"),
                text.alias("error"),
                answers=pl.concat_list(text),
                answer_ids=pl.concat_list(text),
                gold=pl.concat_list(text),
                gold_ids=pl.concat_list(text),
                gold_aliases=pl.concat_list(pl.concat_list(text)),
                hits_at_1=pl.lit(0.0 if name == "one" else 1.0, pl.Float32),
            )
            rewrite_shard(shard, rows)
        saved = Path(name, "run.yaml")
        saved.write_text(saved.read_text("utf-8").replace("label: oracle", 'label: "o\\x1b[31m\\u202er"'), "utf-8")
        Path(name, "summary.json").write_text(
            Path(name, "summary.json").read_text("utf-8").replace('"srp"', '"s\\u001b[31m\\u202er"'), "utf-8"
        )
    return str(pl.read_parquet("one/traces/*.parquet")["question_id"][0])


@pytest.mark.parametrize("json", [[], ["json=true"]], ids=["text", "json"])
@pytest.mark.parametrize(
    "command",
    [
        "compare one two flips=3",
        "ls .",
        "report one",
        "collect calls one output=calls.jsonl",
        "show one ID",
        "score one",
        "capacity one +questions.a=10",
        "capacity one",
        "show one nowhere\x1b[31m",
        "evaluate one/run.yaml",
        "evaluate run.dir=one dataset.triples=2000 run.limit=2",
        "score one\x1b[31m\u202e",
        "compare one two base=\x9b",
        "sweep \x1b.txt",
        "doctor method=\u202e",
        "estimate llm=\x1b",
        "\x1bnone",
    ],
)
def test_no_command_controls_the_terminal(command: str, json: list[str], hostile: str, kgqa: Kgqa) -> None:
    done = kgqa(*command.replace("ID", hostile).split(" "), *json)
    assert not FORBIDDEN & set(done.out + done.err)
    assert done.out or done.err


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_repeats_what_controls_the_terminal(name: str, kgqa: Kgqa) -> None:
    for word in ("no.key\x1b[31m=1", "\x1b[31m\u202e", "--\x9bflag", "a\nkgqa: done", "--a\nkgqa: done"):
        done = kgqa(*name.split(), word)
        assert done.code == 2
        assert len([line for line in done.err.splitlines() if line.startswith("kgqa: ")]) == 1, word
        assert not FORBIDDEN & set(done.out + done.err), word
        assert "Exception" not in done.err, word


def test_a_table_keeps_its_styles_and_loses_the_commands_in_its_cells(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(HOSTILE)
    table.add_row(f"[bold]{HOSTILE}")
    Console(force_terminal=True, color_system="standard").print(table)
    printed = capsys.readouterr().out
    assert "\x1b[1m" in printed
    assert not (FORBIDDEN - {"\x1b"}) & set(printed)
    assert "\x1b]0" not in printed


def test_json_keeps_the_characters_in_their_escaped_form() -> None:
    assert printable_json('"\x9b\u202e\u00e9"') == '"\\u009b\\u202e\u00e9"'
    assert printable("\u202e\u2028é\n\t") == "\ufffd\ufffdé\n\t"


@pytest.mark.parametrize(
    "command", ["compare RUN COPY", "losses RUN", "score RUN", "show RUN sample-test-000000", "doctor RUN/run.yaml"]
)
def test_no_line_ends_with_spaces_where_the_output_is_no_terminal(
    command: str, finished: Path, tmp_path: Path, kgqa: Kgqa
) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    shown = kgqa(*command.replace("RUN", str(finished)).replace("COPY", str(tmp_path / "copy")).split()).out
    assert shown.count("\n") > 1
    assert [line for line in shown.splitlines() if line != line.rstrip()] == []
