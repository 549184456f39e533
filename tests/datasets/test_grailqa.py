"""GrailQA in its official form and as ToG distributes it, written out from specification §10.4."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.datasets.grailqa import GrailQA
from pipeline.errors import UserError
from pipeline.types import Entity, GoldAnswer, Rejected, Relation

SPARQL = (
    "PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> PREFIX : <http://rdf.freebase.com/ns/> \n"
    "SELECT (?x0 AS ?value) WHERE {\nSELECT DISTINCT ?x0  WHERE { \n"
    "?x0 :type.object.type :education.school_newspaper . \nVALUES ?x1 { :m.0m9_5 } \n"
    "?x0 :education.school_newspaper.school ?x1 . \nFILTER ( ?x0 != ?x1  )\n}\n}"
)


def _question(**other: object) -> dict[str, object]:
    nodes = [
        {"nid": 0, "node_type": "class", "id": "education.school_newspaper", "friendly_name": "School newspaper"},
        {"nid": 1, "node_type": "entity", "id": "m.0m9_5", "friendly_name": "East Carolina University"},
        {"nid": 2, "node_type": "literal", "id": "1.0^^http://www.w3.org/2001/XMLSchema#float", "friendly_name": "1.0"},
    ]
    return {
        "qid": 2100176005000,
        "question": "name the school newspaper from east carolina college.",
        "answer": [
            {"answer_type": "Entity", "answer_argument": "m.0gw62h", "entity_name": "The East Carolinian"},
            {"answer_type": "Value", "answer_argument": "1925"},
        ],
        "function": "none",
        "num_node": 2,
        "num_edge": 1,
        "graph_query": {"nodes": nodes, "edges": [{"start": 0, "end": 1, "relation": "r", "friendly_name": "r"}]},
        "sparql_query": SPARQL,
        "domains": ["education"],
        "level": "i.i.d.",
        "s_expression": "(AND education.school_newspaper (JOIN education.school_newspaper.school m.0m9_5))",
        **other,
    }


def test_the_official_file_takes_its_topics_from_the_query_graph(tmp_path: Path) -> None:
    (tmp_path / "grailqa_v1.0_dev.json.gz").write_bytes(gzip.compress(json.dumps([_question()]).encode()))
    (example,) = default(GrailQA, path=tmp_path).examples(pytest.fail)
    assert example.question.id == "2100176005000"
    assert example.question.split == "dev"
    assert example.question.topic_entities == (Entity("m.0m9_5", "East Carolina University"),)
    assert example.question.meta == {"type": "none", "level": "i.i.d."}
    assert example.gold.answers == (GoldAnswer("The East Carolinian", id="m.0gw62h"), GoldAnswer("1925"))
    assert example.gold.paths == {"m.0m9_5": ((Relation("education.school_newspaper.school", "in"),),)}


def test_togs_sample_has_its_own_topics(tmp_path: Path) -> None:
    (tmp_path / "graliqa.json").write_text(json.dumps([_question(topic_entity={})]))
    (example,) = default(GrailQA, path=tmp_path).examples(pytest.fail)
    assert example.question.topic_entities == ()
    with pytest.raises(UserError, match=r"looked for grailqa_v1\.0_train\.json"):
        default(GrailQA, path=tmp_path, split="train").examples(pytest.fail)


def test_the_test_split_is_read_without_answers(tmp_path: Path) -> None:
    (tmp_path / "grailqa_v1.0_test.json").write_text(json.dumps([{"qid": 1, "question": "what?"}]))
    (example,) = default(GrailQA, path=tmp_path, split="test").examples(pytest.fail)
    assert example.gold.answers == ()
    assert example.gold.paths == {}


def test_malformed_questions_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "graliqa.json").write_text(
        json.dumps([_question(), _question(qid=None), _question(qid=1, answer=[{"answer_type": "Thing"}]), _question()])
    )
    rejected: list[Rejected] = []
    assert len(list(default(GrailQA, path=tmp_path).examples(rejected.append))) == 1
    assert [row.line for row in rejected] == [2, 3, 4]
    assert rejected[1].reason == "answer.0.answer_type must be 'Entity' or 'Value'"


def test_a_number_that_json_does_not_have_is_a_missing_value(tmp_path: Path) -> None:
    """Python writes NaN for a missing value of a table: it must not become the text "nan"."""
    rows = [_question(qid=1, question=math.nan), _question(qid=math.inf), _question(qid=3, num_edge=math.nan)]
    (tmp_path / "graliqa.json").write_text(json.dumps(rows))
    rejected: list[Rejected] = []
    (example,) = default(GrailQA, path=tmp_path).examples(rejected.append)
    assert example.question.id == "3", "a field that is not read may have any value"
    assert [row.reason for row in rejected] == ["question must be a text", "qid must be a text"]


def test_the_dataset_has_no_graph(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="kg=sparql"):
        default(GrailQA, path=tmp_path).triples()
