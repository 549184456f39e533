"""A user's graph in tab-separated, CSV and Parquet files."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.datasets.triples import read_triples
from pipeline.errors import UserError
from pipeline.types import LiteralNode, Triple

FACTS = [Triple("Ann", "knows", "Bo"), Triple("Bo, the second", 'says "hi"', "NA")]


def parquet(file: Path, names: Sequence[str], *columns: list[object]) -> Path:
    pq.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], names=list(names)), file)
    return file


@pytest.mark.parametrize(
    "text",
    [
        'head,relation,tail\nAnn,knows,Bo\n"Bo, the second","says ""hi""",NA\n',
        'Ann,knows,Bo\n"Bo, the second","says ""hi""",NA\n',
        '\ufefftail,weight,head,relation\r\nBo,1,Ann,knows\r\nNA,,"Bo, the second","says ""hi"""\r\n',
    ],
)
def test_csv(tmp_path: Path, text: str) -> None:
    (tmp_path / "facts.csv").write_text(text, newline="")
    (tmp_path / "facts.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert list(read_triples(tmp_path / "facts.csv")) == FACTS
    assert list(read_triples(tmp_path / "facts.csv.gz")) == FACTS


def test_a_value_of_csv_may_have_several_lines(tmp_path: Path) -> None:
    (tmp_path / "facts.csv").write_text('Ann,says,"one\ntwo"\n')
    assert list(read_triples(tmp_path / "facts.csv")) == [Triple("Ann", "says", "one\ntwo")]


@pytest.mark.parametrize("break_", ["\n", "\r", "\x0b", "\u2028"])
def test_a_relation_is_one_line(tmp_path: Path, break_: str) -> None:
    """Prompts and replies name one relation in a line."""
    relation = f"knows{break_}well"
    (tmp_path / "facts.csv").write_text(f'Ann,"{relation}",Bo\n', newline="")
    (tmp_path / "facts.txt").write_text(f"Ann\t{relation}\tBo\n", newline="")
    parquet(tmp_path / "facts.parquet", ["head", "relation", "tail"], ["Ann"], [relation], ["Bo"])
    names = ["facts.csv", "facts.parquet", *(["facts.txt"] if break_ != "\n" else [])]  # which has lines of its own
    for name in names:
        with pytest.raises(UserError, match="the relation contains a line break"):
            list(read_triples(tmp_path / name))


def test_parquet(tmp_path: Path) -> None:
    heads, relations, tails = map(list, zip(*FACTS, strict=True))
    named = parquet(tmp_path / "named.parquet", ["tail", "weight", "head", "relation"], tails, [1, 2], heads, relations)
    unnamed = parquet(tmp_path / "unnamed.parquet", ["s", "p", "o"], heads, relations, tails)
    capitals = parquet(tmp_path / "x.parquet", ["x", "Tail", "HEAD", "Relation"], heads, tails, heads, relations)
    assert list(read_triples(named)) == list(read_triples(unnamed)) == list(read_triples(capitals)) == FACTS


def test_any_other_name_is_tab_separated(tmp_path: Path) -> None:
    (tmp_path / "facts.txt").write_text("head\trelation\ttail\nAnn\tknows\tBo\n")
    assert list(read_triples(tmp_path / "facts.txt")) == FACTS[:1]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "x.csv",
            "Subject,predicate,object,x\n1,2,3,4\n",
            "has neither the columns head, relation and tail nor exactly three, but Subject, predicate, object, x$",
        ),
        ("x.csv", "a;b;c\n1;2;3\n", "nor exactly three, but a;b;c: is it separated by semicolons[?]"),
        ("x.csv", "a\tb\tc\n1\t2\t3\n", "nor exactly three, but a\tb\tc: is it separated by tabs[?]"),
        (
            "x.csv",
            "Ann,knows,Bo\nAnn,,Bo\n",
            "x.csv, line 2: no relation, but head, relation and tail must be texts that are not",
        ),
        (
            "x.csv",
            ",knows,\n",
            "x.csv, line 1: no head and tail, but head, relation and tail must be texts that are not",
        ),
        (
            "x.tsv",
            "Ann\tknows\tBo\nAnn\tknows\t\n",
            "x.tsv, line 2: no tail, but head, relation and tail must be texts",
        ),
        ("x.tsv", "\tknows\tBo\n", "x.tsv, line 1: no head, but head, relation and tail must be texts"),
        (
            "x.csv",
            "Ann,knows,Bo\nAnn,knows\n",
            "x.csv, line 2: expected 3 values, as in the first line, but there are 2$",
        ),
        ("x.csv", "head,relation,tail\nA,b,C\nA,b,D\nA,B\n", "x.csv, line 4: expected 3 values, .* there are 2$"),
        (
            "x.csv",
            'Ann,knows,Bo\n"Bo,knows,Cy\n"Cy",knows,Bo\n',
            "x.csv, lines 2 to 3 are not CSV .*: a value that begins with",
        ),
        ("x.csv", 'A,b,C\nA,b,"C\n\nA,b,D\nA,b,E\n', "x.csv, lines 2 to 5 are not CSV .unexpected end of data.: "),
        ("x.csv", 'Ann,knows,Bo\nBo,knows,"Cy\n', "x.csv, line 2 is not CSV "),
        ("x.csv", b"Ann,knows,\xff\n", "x.csv, line 1, or soon after it: not valid UTF-8"),
        ("x.csv", "", "x.csv has neither .* but none$"),
        ("x.parquet", "no parquet", "x.parquet cannot be read: "),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message):
        list(read_triples(tmp_path / name))


def test_names_of_freebase_are_texts_in_a_table(tmp_path: Path) -> None:
    file = tmp_path / "facts.tsv"
    file.write_text("m.1\ttype.object.name\tAda\nm.1\tcommon.topic.alias\tthe Countess\nm.1\tp.born\tLondon\n")
    tails = [triple.tail for triple in read_triples(file)]
    assert tails == [LiteralNode("Ada"), LiteralNode("the Countess"), "London"]


def test_blank_lines_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("A\tb\tC\n\n  \nA\tb\tD\n\n")
    (tmp_path / "x.csv").write_text("A,b,C\n\nA,b,D\n\n")
    expected = [Triple("A", "b", "C"), Triple("A", "b", "D")]
    assert list(read_triples(tmp_path / "x.tsv")) == list(read_triples(tmp_path / "x.csv")) == expected


def test_numbers_in_parquet_are_refused(tmp_path: Path) -> None:
    file = parquet(tmp_path / "x.parquet", ["s", "p", "o"], ["Ann"], ["knows"], [1])
    message = r"x.parquet, row 1: the column o has the type int64, but head, relation and tail must be texts"
    with pytest.raises(UserError, match=message):
        list(read_triples(file))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str) -> None:
    count = 200_000
    names = [f"a node with a long name, {n:>100}" for n in range(count)]
    if kind == "parquet":
        columns = (names, ["knows"] * count, names)
        file = tmp_path / "x.parquet"
        table = pa.Table.from_arrays([pa.array(each) for each in columns], names=["head", "relation", "tail"])
        pq.write_table(table, file, row_group_size=20_000)
    else:
        file = tmp_path / "x.csv"
        file.write_text("".join(f'"{name}",knows,"{name}"\n' for name in names))
    size = 2 * count * len(names[0])
    del names
    allocated = pa.total_allocated_bytes()
    tracemalloc.start()
    arrow = max(pa.total_allocated_bytes() for _ in read_triples(file)) - allocated
    _, python = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert arrow < 24 << 20 < size
    assert python < 28 << 20 < size


@pytest.mark.parametrize(("name", "separator"), [("facts.tsv", "\t"), ("facts.csv", ",")])
def test_a_header_in_other_letters_is_no_fact(tmp_path: Path, name: str, separator: str) -> None:
    rows = (("Head", "Relation", "TAIL"), ("Ann", "knows", "Bo"))
    (tmp_path / name).write_text("".join(f"{separator.join(row)}\n" for row in rows))
    assert list(read_triples(tmp_path / name)) == [Triple("Ann", "knows", "Bo")]


@pytest.mark.parametrize(("name", "separator"), [("facts.tsv", "\t"), ("facts.csv", ",")])
@pytest.mark.parametrize(
    "first",
    [
        ("subject", "predicate", "object"),
        ("h", "r", "t"),
        ("Source", "Edge", "Target"),
        ("head", "relation", "tal"),
        ("Head ", "relation", " tail"),
    ],
)
def test_a_first_line_that_looks_like_a_header_is_a_fact_and_quoted_in_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, separator: str, first: tuple[str, str, str]
) -> None:
    (tmp_path / name).write_text(f"{separator.join(first)}\n{separator.join(FACTS[0])}\n")
    for _ in range(2):
        assert list(read_triples(tmp_path / name)) == [Triple(*first), FACTS[0]]
    (said,) = caplog.messages
    assert f"{name}: the first line ({', '.join(first)}) is read as a fact, but looks like a header" in said


@pytest.mark.parametrize(("name", "separator"), [("facts.tsv", "\t"), ("facts.csv", ",")])
def test_a_header_may_give_another_order(tmp_path: Path, name: str, separator: str) -> None:
    rows = (("tail", "Relation", "head"), ("Bo", "knows", "Ann"), ("Cy", "sees", "Bo"))
    (tmp_path / name).write_text("".join(f"{separator.join(row)}\n" for row in rows))
    assert list(read_triples(tmp_path / name)) == [Triple("Ann", "knows", "Bo"), Triple("Bo", "sees", "Cy")]


def test_the_end_of_a_name_may_be_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "facts.CSV").write_text("Ann,knows,Bo\n")
    (tmp_path / "facts.NT").write_text("<http://x/Ann> <http://x/knows> <http://x/Bo> .\n")
    pq.write_table(pa.table({"head": ["Ann"], "relation": ["knows"], "tail": ["Bo"]}), tmp_path / "facts.PARQUET")
    found = [next(iter(read_triples(tmp_path / f"facts.{end}"))) for end in ("CSV", "PARQUET", "NT")]
    assert found == [Triple("Ann", "knows", "Bo")] * 2 + [Triple("http://x/Ann", "http://x/knows", "http://x/Bo")]


def test_quotes_of_a_table_with_tabs_are_mentioned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "facts.tsv").write_text('"head"\t"relation"\t"tail"\n"Ann"\t"knows"\t"Bo"\n')
    assert list(read_triples(tmp_path / "facts.tsv"))[1] == Triple('"Ann"', '"knows"', '"Bo"')
    (said,) = caplog.messages
    assert "the values of the first line are in double quotes, which are part of the names" in said


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "facts.csv").write_text("head,relation,tail,Head\nAnn,knows,Bo,Cy\n")
    with pytest.raises(UserError, match=r"facts\.csv has several columns with the name head$"):
        list(read_triples(tmp_path / "facts.csv"))


@pytest.mark.parametrize("relation", ["knows ", " knows", "knows\u00a0"])
def test_the_first_relation_with_a_space_at_an_end_is_kept_and_mentioned_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, relation: str
) -> None:
    rows = (("Ann", "knows", "Bo"), ("Bo", relation, "Cy"), ("Cy", relation, "Di"))
    (tmp_path / "facts.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    for _ in range(2):
        assert list(read_triples(tmp_path / "facts.tsv")) == [Triple(*row) for row in rows]
    (said,) = caplog.messages
    sentence = f"the relation {relation!r} has a space at an end, so it is not the relation 'knows'"
    assert f"facts.tsv, line 2: {sentence}" in said


@pytest.mark.parametrize("first", ["Ann\tknows\tBo", "head\trelation\ttail", "h\tknows\tt"])
def test_no_other_first_line_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture, first: str) -> None:
    (tmp_path / "facts.tsv").write_text(f"{first}\nAnn\tknows\tBo\n")
    assert list(read_triples(tmp_path / "facts.tsv"))
    assert not caplog.messages
