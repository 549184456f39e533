"""Any row is read or rejected: no reader raises another error."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import default
from pipeline.datasets.custom import Custom
from pipeline.datasets.cwq import CWQ
from pipeline.datasets.gold_paths import query_graph
from pipeline.datasets.grailqa import GrailQA
from pipeline.datasets.grbench import GRBench
from pipeline.datasets.interface import Dataset
from pipeline.datasets.metaqa import MetaQA
from pipeline.datasets.webqsp import WebQSP
from pipeline.types import Rejected

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)

_FIELDS = {
    "webqsp": ("QuestionId", "RawQuestion", "Parses", "topic_entity"),
    "cwq": ("ID", "question", "sparql", "answers", "answer", "topic_entity", "webqsp_ID"),
    "grailqa": ("qid", "question", "answer", "graph_query", "sparql_query", "topic_entity"),
    "custom": ("id", "question", "topic_entities", "answers", "answers_alt", "gold_relation_paths", "type"),
    "grbench": ("qid", "question", "answer", "level"),
}

_GOOD = {
    "webqsp": {"QuestionId": "good", "RawQuestion": "?", "Parses": []},
    "cwq": {"ID": "good", "question": "?"},
    "grailqa": {"qid": "good", "question": "?"},
    "custom": {"id": "good", "question": "?", "topic_entities": [], "answers": []},
    "grbench": {"qid": "good", "question": "?", "answer": "x"},
}

_READERS: dict[str, Callable[[Path], Dataset]] = {
    "webqsp": lambda file: default(WebQSP, path=file),
    "cwq": lambda file: default(CWQ, path=file),
    "grailqa": lambda file: default(GrailQA, path=file),
    "custom": lambda file: default(Custom, triples=file, questions=file, meta=("type",)),
    "grbench": lambda file: default(GRBench, path=file, domain="amazon"),
}


def _read(dataset: Dataset) -> tuple[int, int]:
    rejected: list[Rejected] = []
    read = sum(1 for _ in dataset.examples(rejected.append))
    assert all(row.reason and row.line >= 1 for row in rejected)
    return read, len(rejected)


def _row_like(fields: tuple[str, ...]) -> st.SearchStrategy[object]:
    return _JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(fields, _JSON))


@pytest.mark.parametrize("reader", ["custom", "grbench"])
@settings(max_examples=150)
@given(data=st.data())
def test_any_json_line_is_read_or_rejected(reader: str, data: st.DataObject) -> None:
    junk = st.binary(max_size=60) | _row_like(_FIELDS[reader]).map(lambda row: json.dumps(row).encode())
    rows = [row.replace(b"\n", b" ") for row in data.draw(st.lists(junk, max_size=5))]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows"
        file.write_bytes(b"\n".join([json.dumps(_GOOD[reader]).encode(), *rows]))
        read, rejected = _read(_READERS[reader](file))
    assert read >= 1
    assert read + rejected == 1 + sum(bool(row.strip()) for row in rows)


@pytest.mark.parametrize("reader", ["webqsp", "cwq", "grailqa"])
@settings(max_examples=100)
@given(data=st.data())
def test_any_element_of_a_json_array_is_read_or_rejected(reader: str, data: st.DataObject) -> None:
    rows = data.draw(st.lists(_row_like(_FIELDS[reader]), max_size=5))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        file.write_text(json.dumps([_GOOD[reader], *rows]))
        read, rejected = _read(_READERS[reader](file))
    assert read >= 1
    assert read + rejected == 1 + len(rows)


@settings(max_examples=200)
@given(rows=st.lists(st.binary(max_size=60) | st.text(alphabet="[]\t|ab\u2028é").map(str.encode), max_size=6))
def test_any_metaqa_line_is_read_or_rejected(rows: list[bytes]) -> None:
    rows = [row.replace(b"\n", b" ") for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "1-hop" / "qa_test.txt"
        file.parent.mkdir()
        file.write_bytes(b"".join(row + b"\n" for row in [b"who [a]\tb", *rows]))
        read, rejected = _read(default(MetaQA, path=Path(folder), hops=1))
    assert read + rejected == 1 + len(rows)


@settings(max_examples=200)
@given(
    st.text(max_size=80)
    | st.lists(st.sampled_from(["SELECT", "?x", "WHERE", "{", "}", "ns:a", "OR", '"', "'", "<", ">", "."])).map(
        " ".join
    )
)
def test_any_gold_query_is_read_or_skipped(sparql: str) -> None:
    query_graph(sparql)
