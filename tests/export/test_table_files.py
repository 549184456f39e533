"""Tables as files: figures with intervals and marks, and hostile text as text."""

from __future__ import annotations

import csv
import re
import subprocess
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from rich.table import Table
from rich.text import Text

from pipeline.analysis.runs import Run
from pipeline.cli.commands import COMMANDS
from pipeline.cli.main import main
from pipeline.errors import UserError
from pipeline.evaluation.score_tables import FittingTable, PValue, plain_table
from pipeline.export.table_files import file_table, write_tables
from tests.support import KGQA, sampled

HOSTILE = {
    "formula": '=HYPERLINK("http://x","y")',
    "plus": "+1+cmd|' /C calc'!A0",
    "minus": "-2+3+cmd",
    "at": "@SUM(1+1)*cmd",
    "tab": "\t=1+1",
    "full width": "＝1+1",
    "space before": "  =1+1",
    "script": "<script>alert(1)</script>",
    "markdown": "**bold** [x](javascript:alert(1)) `code` | pipe ![i](y)",
    "latex": r"\input{/etc/passwd} $x$ 50% a_b #1 & {y} ~ ^ \\ \end{table}",
    "control": "\x1b[31mred\x07",
    "right to left": "\u202eabc\u2066",
    "lines": "one\ntwo\r\nthree",
    "quotes": "'\"`",
}


def table(text: str = "plain") -> Table:
    """A table like those of `kgqa compare`, with a text in every place where a run folder may have one."""
    made = plain_table(f"title {text}", f"note {text}")
    for heading in (f"method {text}", "Hits@1", "difference", "p", "tokens"):
        made.add_column(heading, justify="left" if heading.startswith("method") else "right")
    made.add_row(text, Text("68.3\n55.8–78.7"), "–", "–", "6,014")
    made.add_row("b", Text("50.0\n40.0–60.0"), Text("-18.3 -55.0…-1.5"), PValue(0.0003), "12")
    made.add_row("c", Text("70.0\n60.0–80.0"), Text("+1.7 -2.0…+5.5"), PValue(0.03), "12.5")
    return made


def read_csv(file: Path) -> list[list[str]]:
    with file.open(newline="") as opened:
        return list(csv.reader(opened))


@pytest.mark.parametrize(("value", "mark"), [(0.0498, "*"), (0.0502, ""), (0.0098, "**"), (0.00099, "***"), (1, "")])
def test_marks_are_of_the_exact_p_and_not_of_the_printed_one(value: float, mark: str) -> None:
    made = plain_table("", "")
    for heading in ("difference", "p"):
        made.add_column(heading)
    made.add_row("+1.0", PValue(value))
    assert file_table(made).rows[0][0].mark == mark


def test_csv_has_columns_for_the_ends_of_intervals_and_for_marks(tmp_path: Path) -> None:
    (file,) = write_tables([table()], str(tmp_path / "t.csv"))
    headings, *rows = read_csv(Path(file))
    assert headings == [
        *("method plain", "Hits@1", "Hits@1 low", "Hits@1 high"),
        *("difference", "difference low", "difference high", "difference mark", "p", "tokens"),
    ]
    assert rows == [
        ["plain", "68.3", "55.8", "78.7", "", "", "", "", "", "6014"],
        ["b", "50.0", "40.0", "60.0", "-18.3", "-55.0", "-1.5", "***", "<0.001", "12"],
        ["c", "70.0", "60.0", "80.0", "1.7", "-2.0", "5.5", "*", "0.030", "12.5"],
    ]


def test_csv_has_a_column_for_each_line_of_a_cell(tmp_path: Path) -> None:
    made = plain_table(None)
    for heading in ("question", "published", "beam_\nwidth"):
        made.add_column(heading)
    made.add_row("who?\nq1", "-3.1\nas published", "2")
    made.add_row("where?", "–", "1 2\n3")
    (file,) = write_tables([made], str(tmp_path / "t.csv"))
    assert read_csv(Path(file)) == [
        ["question", "question 2", "published", "published 2", "beam_width", "beam_width 2"],
        ["who?", "q1", "-3.1", "as published", "2", ""],
        ["where?", "", "", "", "1 2", "3"],
    ]


@pytest.mark.parametrize("ending", ["csv", "md", "tex"])
def test_a_heading_that_is_broken_on_a_terminal_is_whole_in_a_file(ending: str, tmp_path: Path) -> None:
    made = plain_table(None)
    for heading in ("beam_\nwidth", "two\nwords"):
        made.add_column(heading)
    (file,) = write_tables([made], str(tmp_path / f"t.{ending}"))
    text = Path(file).read_text().replace("\\", "")
    assert "beam_width" in text
    assert "two words" in text


def test_latex_has_rules_intervals_and_marks(tmp_path: Path) -> None:
    (file,) = write_tables([table()], str(tmp_path / "t.tex"))
    text = Path(file).read_text()
    for rule in ("toprule", "midrule", "bottomrule"):
        assert text.count(f"\\{rule}") == 1
    assert r"\begin{tabular}{lrrrr}" in text
    assert r"b & 50.0 {\scriptsize $[40.0, 60.0]$} & $-18.3^{***}$ {\scriptsize $[-55.0, -1.5]$}" in text
    assert r"$+1.7^{*}$ {\scriptsize $[-2.0, 5.5]$} & 0.030 & 12.5 \\" in text


def test_markdown_has_intervals_and_marks(tmp_path: Path) -> None:
    (file,) = write_tables([table()], str(tmp_path / "t.md"))
    rendered = MarkdownIt("commonmark").enable("table").render(Path(file).read_text())
    cells = re.findall(r"<td[^>]*>(.*?)</td>", rendered)
    assert cells[5:8] == ["b", "50.0 [40.0–60.0]", "-18.3*** [-55.0…-1.5]"]
    assert rendered.count("<tr>") == 4


@pytest.mark.parametrize("name", HOSTILE)
def test_no_formula_starts_a_cell(name: str, tmp_path: Path) -> None:
    (file,) = write_tables([table(HOSTILE[name])], str(tmp_path / "t.csv"))
    rows = read_csv(Path(file))
    assert len(rows) == 4
    for cell in (cell for row in rows for cell in row):
        assert not cell.lstrip().startswith(("=", "+", "@", "＝")), cell
        assert not cell.startswith("-") or re.fullmatch(r"-\d+(\.\d+)?", cell)
        assert "\x1b" not in cell
        assert "\u202e" not in cell


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_text_in_markdown(name: str, tmp_path: Path) -> None:
    (file,) = write_tables([table(HOSTILE[name])], str(tmp_path / "t.md"))
    rendered = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(Path(file).read_text())
    assert set(re.findall(r"<([a-z0-9]+)", rendered)) <= {
        "p",
        "strong",
        "br",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    assert rendered.count("<strong>") == 1, "of the title"
    assert rendered.count("<td") == 15


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_text_in_latex(name: str, tmp_path: Path) -> None:
    harmless, hostile = (Path(write_tables([table(text)], str(tmp_path / f"{n}.tex"))[0]).read_text()
                         for n, text in enumerate(("plain", HOSTILE[name])))  # fmt: skip
    assert len(hostile.splitlines()) <= len(harmless.splitlines()) + 2, "a note may have more lines"
    commands = set(re.findall(r"\\[a-zA-Z]+", hostile)) - set(re.findall(r"\\[a-zA-Z]+", harmless))
    assert commands <= {rf"\text{n}" for n in
                        ("backslash", "asciitilde", "asciicircum", "less", "greater", "bar", "quotedbl", "quotesingle",
                         "asciigrave")}  # fmt: skip
    (row,) = [line for line in hostile.splitlines() if "68.3" in line]
    assert len(re.findall(r"(?<!\\)&", row)) == 4
    assert not re.search(r"(?<!\\)[#%_]", row)
    assert row.endswith(r" \\")


def test_several_tables_are_several_csv_files_and_one_text(tmp_path: Path) -> None:
    tables = [table("one"), "a text", FittingTable(lambda left_out: table("two"), ())]
    files = write_tables(tables, str(tmp_path / "new" / "folder" / "t.csv"))
    assert [Path(file).name for file in files] == ["t.csv", "t-2.csv"]
    (file,) = write_tables(tables, str(tmp_path / "t.md"))
    assert Path(file).read_text().count("| --- |") == 2


def test_all_columns_are_written_however_narrow_the_terminal(tmp_path: Path) -> None:
    def build(left_out: list[str]) -> Table:
        made = plain_table(None)
        for heading in ("a", "b"):
            if heading not in left_out:
                made.add_column(heading)
        return made

    (file,) = write_tables([FittingTable(build, ("b",))], str(tmp_path / "t.csv"))
    assert read_csv(Path(file)) == [["a", "b"]]
    assert file_table(build([])).note == ""


def test_an_unknown_ending_is_refused_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"table=t\.xls: the ending says the format: \.csv, \.md, \.tex"):
        write_tables([table()], "t.xls")
    assert main(["evaluate", f"run.dir={tmp_path}/run", "table=t.xls"]) == 2
    assert "table=t.xls" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


_SMALL = "dataset.triples=2000 run.limit=8 evaluation.bootstrap_resamples=100 llm=oracle llm.error_rate=0.4"
_COMMANDS = {
    "evaluate": ("evaluate {run}/run.yaml", "Hits@1"),
    "sweep": (f"sweep method=srp method.depth=1,2 {_SMALL} run.dir={{new}}", "Hits@1"),
    "ablations": (f"ablations method=r3 {_SMALL} run.dir={{new}}", "difference"),
    "ls": ("ls {run}", "Hits@1"),
    "compare": ("compare {run} {other}", "difference"),
    "losses": ("losses {run}", "right"),
    "score": ("score {run}", "Hits@1"),
    "report": ("report {run} output={new}.html", "Hits@1"),
}
"""How each command that takes `table=` is called, and a heading of its table."""
_ELSEWHERE = {"reproduce"}
"""tests/cli/test_reproduce.py tests it: its run takes long."""


def test_every_command_that_takes_a_file_for_its_tables_is_tested() -> None:
    assert {name for name, each in COMMANDS.items() if each.writes_tables} == {*_COMMANDS, *_ELSEWHERE}


@pytest.mark.parametrize("command", sampled(_COMMANDS, every=4))
def test_commands_write_their_tables(
    command: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, heading = _COMMANDS[command]
    other = tmp_path / "other"
    if "{other}" in words:
        assert main(["evaluate", "method=cot", *_SMALL.split(), f"run.dir={other}"]) == 0
    words = words.format(run=run.folder.path, other=other, new=tmp_path / "new")
    for ending in ("csv", "md", "tex"):
        assert main([*words.split(), f"table={tmp_path}/t.{ending}"]) == 0
        assert str(tmp_path / f"t.{ending}") in capsys.readouterr().err
        assert heading in (tmp_path / f"t.{ending}").read_text()
    for row in read_csv(tmp_path / "t.csv"):
        assert not [cell for cell in row if "; " in cell or "\n" in cell]


def test_the_file_of_a_comparison_has_all_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "method=srp", "method.depth=1,2,3", *_SMALL.split(), f"run.dir={tmp_path}/run"]) == 0
    capsys.readouterr()
    assert main(["compare", f"{tmp_path}/run", "top=1", f"table={tmp_path}/t.csv"]) == 0
    assert "left out of the table" in " ".join(capsys.readouterr().out.split())
    heading, base, *others = [row[0] for row in read_csv(tmp_path / "t.csv")]
    assert (heading, base, set(others)) == ("#", "0", {"1", "2"})


def test_the_files_of_a_comparison_say_that_no_language_model_answered(run: Run, tmp_path: Path) -> None:
    assert main(["evaluate", "method=cot", *_SMALL.split(), f"run.dir={tmp_path}/other"]) == 0
    for ending in ("csv", "md", "tex"):
        assert main(["compare", str(run.folder.path), f"{tmp_path}/other", f"table={tmp_path}/t.{ending}"]) == 0
    assert read_csv(tmp_path / "t.csv")[0][1] == "method (oracle)"
    for ending in ("md", "tex"):
        assert "not the answers of a language model: oracle" in (tmp_path / f"t.{ending}").read_text()


def test_the_file_is_written_though_the_reader_of_the_table_has_stopped(run: Run, tmp_path: Path) -> None:
    command = [*KGQA, "score", str(run.folder.path), f"table={tmp_path}/t.csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.wait(60)
    assert read_csv(tmp_path / "t.csv")[0][0] == "method"


def test_the_file_of_one_configuration_has_one_value_in_each_cell(run: Run, tmp_path: Path) -> None:
    assert main(["score", str(run.folder.path), f"table={tmp_path}/t.csv"]) == 0
    headings, cells = read_csv(tmp_path / "t.csv")
    row = dict(zip(headings, cells, strict=True))
    (summary,) = run.configurations.collect().to_dicts()
    assert (row["method"], row["answered by"], row["dataset"]) == ("srp", "oracle", "synthetic")
    assert int(row["questions"]) == 8
    for heading, name in {"Hits@1": "hits_at_1", "relation_recall": "relation_recall"}.items():
        for end in ("", "_low", "_high"):
            found = float(row[heading + end.replace("_", " ")])
            assert found == pytest.approx(100 * summary[name + end], abs=0.051)
