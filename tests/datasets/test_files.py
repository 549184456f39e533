"""Helpers of the readers: finding files, reading them plain or gzipped, rejecting rows."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.datasets.custom import Custom
from pipeline.datasets.files import files_matching, find_files, json_array, lines
from pipeline.datasets.grbench import GRBench
from pipeline.datasets.inverses import read_inverses
from pipeline.datasets.triples import delimited_triples, read_triples
from pipeline.errors import UserError
from pipeline.evaluation.predictions import read_predictions
from pipeline.training.labelled import read_held_out
from pipeline.training.sft.texts import read_texts
from pipeline.types import Rejected, Triple
from tests.support import refuse


def _row(qid: object, **other: object) -> str:
    return json.dumps({"qid": qid, "question": "Who?", "answer": "Ann", **other})


def _read(folder: Path, text: str | bytes) -> tuple[list[str], list[Rejected]]:
    file = folder / "data.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    rejected: list[Rejected] = []
    examples = default(GRBench, path=file, domain="amazon").examples(rejected.append)
    return [example.question.id for example in examples], rejected


def test_a_bad_row_is_rejected_with_line_and_reason_and_reading_continues(tmp_path: Path) -> None:
    rows = [
        _row("0"),
        "",
        "{not json",
        '{"qid": "1", "question": "Who?"}',
        _row("2", question=["who"]),
        _row("0"),
        '["a", "list"]',
        _row(""),
        _row(3),
        '{"qid": "4", "question": "Who?", "anwser": "x"}',
    ]
    ids, rejected = _read(tmp_path, "\n".join(rows))
    assert ids == ["amazon-0", "amazon-3"]
    assert {row.file for row in rejected} == {str(tmp_path / "data.json")}
    assert [row.line for row in rejected] == [3, 4, 5, 6, 7, 8, 10]
    reasons = [row.reason for row in rejected]
    assert reasons[0] == "it is not valid JSON (key must be a string)", "the line is that of the file"
    assert reasons[1] == "answer is missing"
    assert reasons[2] == "question must be a text"
    assert reasons[3] == "the id 'amazon-0' occurs earlier in this file"
    assert "object" in reasons[4]
    assert reasons[6] == "answer is missing, but there is 'anwser'"
    assert reasons[5].startswith("qid must not be empty")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_python_writes_for_a_missing_number_is_rejected(tmp_path: Path, number: str) -> None:
    bad = f'{{"qid": "1", "question": "Who?", "answer": [{number}]}}'
    ids, rejected = _read(tmp_path, "\n".join([_row("0", question="What is NaN, and what Infinity?"), bad]))
    assert ids == ["amazon-0"]
    reason = f"it is not valid JSON ({number} is no number there: write null, or leave it out)"
    assert [(row.line, row.reason) for row in rejected] == [(2, reason)]


def test_invalid_utf8_and_lone_surrogates_are_rejected(tmp_path: Path) -> None:
    bad = [b'{"qid": "1", "question": "\xff", "answer": "x"}', b'{"qid": "2", "question": "\\ud800", "answer": "x"}']
    ids, rejected = _read(tmp_path, b"\n".join([_row("0").encode(), *bad]))
    assert ids == ["amazon-0"]
    assert [row.line for row in rejected] == [2, 3]


def test_windows_line_ends_and_other_separators_inside_a_text(tmp_path: Path) -> None:
    ids, rejected = _read(tmp_path, (_row("0", question="a\u2028b\x85c") + "\r\n" + _row("1") + "\r\n").encode())
    assert (ids, rejected) == (["amazon-0", "amazon-1"], [])


@pytest.mark.parametrize("text", ["", "\n\n", "a plain text\nof two lines\n", "[1, 2]", "x\n" * 500])
def test_a_file_of_another_format_is_a_user_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="is not a file of GRBench questions of amazon: "):
        _read(tmp_path, text)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_json_array_is_named_in_the_refusal(tmp_path: Path, indent: int | None) -> None:
    with pytest.raises(UserError, match=r"The file is a JSON array: write each of its objects on a line of its own"):
        _read(tmp_path, json.dumps([json.loads(_row("0"))], indent=indent))


@pytest.mark.parametrize("text", ["id,question,answers\nq1,who?,Ann\n", "who is Ann?\tBo\n"])
def test_a_table_is_told_from_json_lines(tmp_path: Path, text: str) -> None:
    with pytest.raises(
        UserError, match=r"The file must be JSON Lines: a JSON object on each line, and no CSV or other"
    ):
        _read(tmp_path, text)


def test_reading_stops_after_100_leading_bad_rows(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text("x\n" * 500 + _row("0"))
    rejected: list[Rejected] = []
    with pytest.raises(UserError, match="line 1:"):
        list(default(GRBench, path=tmp_path / "data.json", domain="amazon").examples(rejected.append))
    assert len(rejected) == 100


def test_bad_rows_after_a_good_one_never_stop_reading(tmp_path: Path) -> None:
    ids, rejected = _read(tmp_path, "\n".join([_row("0"), *["x"] * 500, _row("1")]))
    assert (ids, len(rejected)) == (["amazon-0", "amazon-1"], 500)


def test_gzip_is_detected_by_content_and_a_truncated_file_is_a_user_error(tmp_path: Path) -> None:
    packed = gzip.compress(b"one\ntwo\n" * 1000)
    (tmp_path / "whole").write_bytes(packed)
    assert list(lines(tmp_path / "whole"))[-1] == (2000, b"two")
    (tmp_path / "truncated").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UserError, match="truncated cannot be read"):
        list(lines(tmp_path / "truncated"))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_byte_order_mark_is_no_part_of_any_file(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """Windows programs write one at the start of UTF-8 files."""

    def written(name: str, text: str) -> Path:
        (tmp_path / name).write_bytes(pack(f"\ufeff{text}\n".encode()))
        return tmp_path / name

    fact = Triple("Ann", "knows", "Bo")
    for name in ("facts.tsv", "facts.csv"):
        separator = "\t" if name == "facts.tsv" else ","
        for header in ("", f"head{separator}relation{separator}tail\n"):
            assert list(read_triples(written(name, header + separator.join(fact)))) == [fact]
    n_triples = Triple("http://x/a", "http://x/p", "http://x/b")
    assert list(read_triples(written("facts.nt", "<http://x/a> <http://x/p> <http://x/b> ."))) == [n_triples]
    assert read_inverses(written("inverses.tsv", "relation\treverse\na\tb")) == {"a": "b", "b": "a"}
    assert list(json_array(written("array.json", "[1]"))) == [(1, 1)]
    assert read_held_out([written("held.txt", "q1")]) == {"q1"}
    question = '{"id": "q1", "question": "Who?", "topic_entities": [], "answers": ["Bo"]}'
    (example,) = default(Custom, questions=written("questions.jsonl", question), triples="none").examples(refuse)
    assert example.question.id == "q1"
    predictions = read_predictions(written("predictions.jsonl", '{"id": "q1", "answers": ["Bo"]}'), refuse)
    assert list(predictions.by_id) == ["q1"]
    rows = list(read_texts([written("texts.jsonl", '{"question": "Who?", "text": "Bo"}')]))
    assert len(rows) == 1


def test_a_file_that_is_shorter_than_a_byte_order_mark(tmp_path: Path) -> None:
    for text in (b"", b"x", b"\xef\xbb"):
        (tmp_path / "short").write_bytes(text)
        assert [line for _, line in lines(tmp_path / "short")] == [text] * bool(text)


def test_patterns_are_tried_in_order_plain_before_gzip(tmp_path: Path) -> None:
    for name in ("b.txt", "b.txt.gz", "a2.gz", "a1.gz"):
        (tmp_path / name).touch()
    assert [file.name for file in files_matching(tmp_path, ("none", "a*", "b.txt"))] == ["a1.gz", "a2.gz"]
    assert [file.name for file in files_matching(tmp_path, ("b.txt", "a*"))] == ["b.txt"]
    assert files_matching(tmp_path, ("none",)) == []


def test_errors_for_missing_files_name_the_patterns(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dataset.path=/nowhere is not a folder with fish: looked for a.txt or b.txt"):
        find_files(Path("/nowhere"), ("a.txt", "b.txt"), what="fish")
    with pytest.raises(UserError, match=f"dataset.path={tmp_path} holds no fish"):
        find_files(tmp_path, ("a.txt",), what="fish")


def test_json_arrays_are_read_plain_or_under_a_key(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"Questions": ["a", "b"]}')
    assert list(json_array(file, key="Questions")) == [(1, "a"), (2, "b")]
    with pytest.raises(UserError, match="holds no JSON array"):
        json_array(file)
    file.write_text("[1,")
    with pytest.raises(UserError, match="is not a JSON file"):
        json_array(file)
    file.write_text("[" * 100_000)
    with pytest.raises(UserError, match="is not a JSON file"):
        json_array(file)


def test_triples_are_read_without_quoting_and_with_an_optional_header(tmp_path: Path) -> None:
    file = tmp_path / "t.tsv"
    file.write_text('head\trelation\ttail\n"Weird Al" Yankovic\tplays\tAccordion\n')
    header = "head\trelation\ttail"
    fact = Triple('"Weird Al" Yankovic', "plays", "Accordion")
    assert list(delimited_triples(file, "\t", may_have_header=True)) == [fact]
    file.write_text("a\tr\tb\n" + header + "\n")
    assert list(delimited_triples(file, "\t", may_have_header=True))[1] == Triple("head", "relation", "tail")


@pytest.mark.parametrize("bad", [b"a\tb", b"a\tb\tc\td", b"a\t\tc", b"a\tb\t\xff", b"\t\t"])
def test_the_error_for_a_bad_triple_names_its_line(tmp_path: Path, bad: bytes) -> None:
    file = tmp_path / "t.tsv"
    file.write_bytes(b"a\tr\tb\n" + bad + b"\n")
    with pytest.raises(UserError, match=r"t\.tsv, line 2: "):
        list(delimited_triples(file, "\t"))


@pytest.mark.exhaustive
def test_questions_are_streamed(tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl.gz"
    row = json.dumps({"question": "w" * 2000, "topic_entities": ["a"], "answers": ["b"]})
    with gzip.open(questions, "wt") as out:
        out.writelines(f'{{"id": {number}, {row[1:]}\n' for number in range(10_000))
    dataset = default(Custom, triples=questions, questions=questions)
    tracemalloc.start()
    try:
        count = sum(1 for _ in dataset.examples(pytest.fail))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 10_000
    assert peak < 4e6, "20 MB of questions must not be held in memory"
