"""Relations of gold queries and paths (methods.md §9.5); the evidence metrics are in test_metrics."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

from pipeline.evaluation.reliability import gold_relations, relation_recall
from pipeline.types import Gold, Relation

DOTTED = re.compile(r"[a-z]\w*(?:\.\w+){2,}")
JOINED = re.compile(rf"(?:JOIN|\(R) ({DOTTED.pattern})")

QUERY = """PREFIX ns: <http://rdf.freebase.com/ns/>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
SELECT DISTINCT ?x WHERE {
  FILTER (?x != ns:m.03_dwn)
  ?c ns:sports.sports_team.team_mascot ns:m.03_dwn .
  ?c <http://rdf.freebase.com/ns/sports.sports_team.championships> ?x .
  ?x ns:time.event.start_date ?d .
  ?x ns:type.object.type ns:base.sports.final .
  FILTER (?d > "2010-01-01"^^xsd:dateTime)
}"""


def test_the_relations_of_a_query_are_its_predicates() -> None:
    assert gold_relations(Gold(sparql=QUERY)) == {
        "sports.sports_team.team_mascot",
        "sports.sports_team.championships",
        "time.event.start_date",
    }


def test_without_a_query_the_best_path_of_each_topic_counts() -> None:
    best, other = (Relation("a.b.c", "out"), Relation("d.e.f", "in")), (Relation("x.y.z", "out"),)
    gold = Gold(paths={"m.1": (best, other), "m.2": ((Relation("g.h.i", "out"),),), "m.3": ()})
    assert gold_relations(gold) == {"a.b.c", "d.e.f", "g.h.i"}


def test_relation_recall() -> None:
    gold = Gold(sparql=QUERY)
    assert relation_recall(gold, ["time.event.start_date", "sports.sports_team.championships", "a.b.c"]) == 2 / 3
    assert relation_recall(gold, []) == 0
    assert relation_recall(Gold(), ["a.b.c"]) is None


def test_the_relations_of_real_queries_are_those_of_their_logical_forms(shared_data: Path) -> None:
    file = shared_data / "freebase-slice" / "grailqa.test1000.jsonl.gz"
    for row in map(json.loads, gzip.decompress(file.read_bytes()).splitlines()):
        relations = gold_relations(Gold(sparql=row["sparql"]))
        assert set(JOINED.findall(row["s_expression"])) <= relations <= set(DOTTED.findall(row["s_expression"]))
