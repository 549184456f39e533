"""The Parquet files of RoG, written from rows of the Freebase slice in the form of specification §10.5."""

from __future__ import annotations

import gzip
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import default
from pipeline.datasets.rog import RoG
from pipeline.errors import UserError
from pipeline.types import Entity, GoldAnswer, Rejected, Triple

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "question": pa.string(),
        "answer": pa.list_(pa.string()),
        "q_entity": pa.list_(pa.string()),
        "a_entity": pa.list_(pa.string()),
        "graph": pa.list_(pa.list_(pa.string())),
        "choices": pa.list_(pa.null()),
    }
)
ROWS, FACTS = 120, 400


def _row(id: object, **other: object) -> dict[str, object]:
    row = {"id": id, "question": "Who?", "answer": ["Bo"], "q_entity": ["Ann"], "a_entity": ["Bo"], "choices": []}
    return {**row, "graph": [["Ann", "knows", "Bo"]], **other}


def _write(file: Path, rows: list[dict[str, Any]], group: int = 1000) -> None:
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file, row_group_size=group)


@pytest.fixture(scope="module")
def rows(shared_data: Path) -> list[dict[str, Any]]:
    folder = shared_data / "freebase-slice"
    with gzip.open(folder / "cwq.test.jsonl.gz", "rt", encoding="utf-8") as lines:
        questions = [json.loads(line) for line, _ in zip(lines, range(ROWS), strict=False)]
    with gzip.open(folder / "triples.tsv.gz", "rt", encoding="utf-8") as lines:
        facts = [line.rstrip("\n").split("\t") for line in lines][1 : ROWS * FACTS + 1]
    return [
        _row(
            question["id"],
            question=question["question"],
            answer=question["answers"],
            q_entity=[topic["label"] for topic in question["topic_entities"]],
            graph=facts[number * FACTS : (number + 1) * FACTS],
        )
        for number, question in enumerate(questions)
    ]


@pytest.fixture(scope="module")
def folder(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rog")
    _write(folder / "data" / "test-00000-of-00002.parquet", rows[:70], group=40)
    _write(folder / "data" / "test-00001-of-00002.parquet", rows[70:], group=50)
    _write(folder / "data" / "train-00000-of-00001.parquet", [_row("train")])
    return folder


def test_questions_are_in_file_order(folder: Path, rows: list[dict[str, Any]]) -> None:
    examples = list(default(RoG, path=folder, name="rog-cwq").examples(pytest.fail))
    assert [example.question.id for example in examples] == [row["id"] for row in rows]
    assert examples[0].question.dataset == "rog-cwq"
    assert examples[0].question.topic_entities == (Entity("Lou Seal", "Lou Seal"),)
    assert examples[0].gold.answers == (GoldAnswer("2014 World Series", id="2014 World Series"),)
    assert [example.question.id for example in default(RoG, path=folder, split="train").examples(pytest.fail)] == [
        "train"
    ]


def test_the_graph_is_the_union_of_all_rows(folder: Path, rows: list[dict[str, Any]]) -> None:
    expected = [Triple(*fact) for row in rows for fact in row["graph"]]
    assert list(default(RoG, path=folder).triples()) == expected


def _graphs(rows: list[dict[str, Any]]) -> dict[str, list[Triple]]:
    return {row["id"]: [Triple(*fact) for fact in row["graph"]] for row in rows}


@pytest.mark.parametrize("step", [1, -1, 37])
def test_the_graph_of_a_question_is_found_in_any_order(folder: Path, rows: list[dict[str, Any]], step: int) -> None:
    dataset, graphs = default(RoG, path=folder), _graphs(rows)
    for number in range(ROWS):
        id = rows[number * step % ROWS]["id"]
        assert list(dataset.question_triples(id)) == graphs[id]


def test_graphs_are_thread_safe_and_survive_pickling(folder: Path, rows: list[dict[str, Any]]) -> None:
    dataset, graphs = default(RoG, path=folder), _graphs(rows)
    list(dataset.question_triples(rows[0]["id"]))
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy == dataset
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(graphs, pool.map(lambda key: list(copy.question_triples(key)), graphs), strict=True))
    assert found == graphs


def test_an_unknown_question_is_a_user_error(folder: Path) -> None:
    with pytest.raises(UserError, match="no graph for question 'nobody'"):
        default(RoG, path=folder).question_triples("nobody")


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    facts = [[f"a node with a name {number}", "some.relation", "another node"] for number in range(1000)]
    file = tmp_path / "test.parquet"
    _write(file, [_row(f"q{number}", graph=facts) for number in range(200)], group=50)
    whole = pq.read_table(file).nbytes
    before = pa.total_allocated_bytes()
    peak = max(pa.total_allocated_bytes() - before for _ in default(RoG, path=file).triples())
    assert peak < whole / 4


def test_malformed_rows_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "test.parquet"
    rows = [
        _row("good"),
        _row(None),
        _row("a", question=""),
        _row("b", answer=None),
        _row("c", q_entity=["Ann", None]),
        _row("good"),
        _row("empty", answer=[], q_entity=[]),
    ]
    _write(file, rows)
    rejected: list[Rejected] = []
    examples = list(default(RoG, path=file).examples(rejected.append))
    assert [example.question.id for example in examples] == ["good", "empty"]
    assert examples[1].gold.answers == ()
    assert [row.line for row in rejected] == [2, 3, 4, 5, 6]
    assert rejected[2].reason == "answer must be a list"
    assert rejected[3].reason == "q_entity.1 must be a text"


def test_a_row_with_invalid_utf8_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "test.parquet"
    table = pa.Table.from_pylist([_row("a"), _row("b"), _row("c")], schema=SCHEMA)
    broken = pa.array([b"fine", b"\xff\xfe", b"fine"]).view(pa.string())
    pq.write_table(table.set_column(1, "question", broken), file)
    rejected: list[Rejected] = []
    assert [example.question.id for example in default(RoG, path=file).examples(rejected.append)] == ["a", "c"]
    assert [(row.line, row.reason) for row in rejected] == [(2, "not valid UTF-8")]


@pytest.mark.parametrize("fact", [["a", "b"], ["a", "b", "c", "d"], ["a", None, "c"], None])
def test_the_error_for_a_bad_fact_names_its_row(tmp_path: Path, fact: object) -> None:
    file = tmp_path / "test.parquet"
    _write(file, [_row("a"), _row("b", graph=[["x", "y", "z"], fact])])
    dataset = default(RoG, path=file)
    with pytest.raises(UserError, match=r"test\.parquet, row 2: "):
        list(dataset.triples())
    with pytest.raises(UserError, match=r"test\.parquet, question 'b': "):
        list(dataset.question_triples("b"))
    assert list(dataset.question_triples("a")) == [Triple("Ann", "knows", "Bo")]


def test_files_of_another_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no RoG questions: looked for \*test\*\.parquet"):
        list(default(RoG, path=tmp_path).examples(pytest.fail))
    (tmp_path / "test.parquet").write_text("not parquet")
    with pytest.raises(UserError, match="is not a Parquet file"):
        list(default(RoG, path=tmp_path).examples(pytest.fail))
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "test.parquet")
    with pytest.raises(UserError, match="it has no column question, answer, q_entity"):
        list(default(RoG, path=tmp_path).examples(pytest.fail))
