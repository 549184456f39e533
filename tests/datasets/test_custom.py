"""A user's own graph and questions; the Freebase slice has this layout."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.datasets.custom import Custom
from pipeline.errors import UserError
from pipeline.types import Entity, Example, GoldAnswer, Rejected, Relation, Triple
from tests.support import LARGE

META = ("type", "level", "min_hops", "answerable_in_slice", "gold_pattern_in_slice")
COUNTS = {"webqsp.test": 820, "cwq.test": 1766, "grailqa.test1000": 1000, "simpleqa.test1000": 1000}

Edges = dict[tuple[str, Relation], set[str]]


def _slice(shared_data: Path, file: str, **more: object) -> Custom:
    folder = shared_data / "freebase-slice"
    return default(Custom, triples=folder / "triples.tsv.gz", questions=folder / f"{file}.jsonl.gz", meta=META, **more)


@pytest.fixture(scope="module")
def edges(shared_data: Path) -> Edges:
    found: Edges = defaultdict(set)
    for head, relation, tail in _slice(shared_data, "cwq.test").triples():
        found[str(head), Relation(relation, "out")].add(str(tail))
        found[str(tail), Relation(relation, "in")].add(str(head))
    return found


def _reaches_gold(edges: Edges, example: Example) -> bool:
    gold = {name for answer in example.gold.answers for name in (answer.name, answer.id, *answer.aliases)}
    for topic, paths in example.gold.paths.items():
        for path in paths:
            nodes = {topic}
            for relation in path:
                nodes = {there for here in nodes for there in edges.get((here, relation), ())}
            if nodes & gold:
                return True
    return False


def test_the_graph_of_the_slice_is_read(shared_data: Path) -> None:
    triples = list(_slice(shared_data, "cwq.test").triples())
    assert len(triples) == len(set(triples)) == 100_939
    assert len({node for head, _, tail in triples for node in (head, tail)}) == 55_855
    assert len({relation for _, relation, _ in triples}) == 2_952


@pytest.mark.parametrize("name", COUNTS)
def test_every_question_of_the_slice_is_read(shared_data: Path, name: str) -> None:
    examples = list(_slice(shared_data, name).examples(pytest.fail))
    assert len({example.question.id for example in examples}) == len(examples) == COUNTS[name]
    without_topic = sum(not example.question.topic_entities for example in examples)
    without_gold = sum(not example.gold.answers for example in examples)
    assert (without_topic, without_gold) == {
        "webqsp.test": (0, 6),
        "cwq.test": (6, 0),
        "grailqa.test1000": (12, 0),
        "simpleqa.test1000": (0, 0),
    }[name]


@pytest.mark.parametrize(
    ("name", "every", "expected"),
    [
        pytest.param("webqsp.test", 1, (391, 391), marks=pytest.mark.exhaustive),
        pytest.param("cwq.test", 4, (334, 332), marks=pytest.mark.exhaustive),
        pytest.param("cwq.test", 1, (1336, 1332), marks=LARGE),
        pytest.param("grailqa.test1000", 1, (689, 688), marks=pytest.mark.exhaustive),
    ],
)
def test_gold_paths_reach_gold_where_the_pattern_is_in_the_slice(
    shared_data: Path, edges: Edges, name: str, every: int, expected: tuple[int, int]
) -> None:
    """The exceptions have no topic entity: four CWQ questions, and one GrailQA question about a number."""
    examples = list(_slice(shared_data, name, filter={"gold_pattern_in_slice": True}).examples(pytest.fail))[::every]
    questions, reached = expected
    assert len(examples) == questions
    found = [_reaches_gold(edges, example) for example in examples]
    assert sum(found) >= reached
    assert all(hit or not example.question.topic_entities for hit, example in zip(found, examples, strict=True))


def test_a_question_of_the_slice_is_read_in_full(shared_data: Path) -> None:
    example = next(_slice(shared_data, "cwq.test", name="slice").examples(pytest.fail))
    question = example.question
    assert (question.dataset, question.split) == ("slice", "test")
    assert question.topic_entities == (Entity("Lou Seal", "Lou Seal"),)
    assert question.meta == {
        "type": "composition",
        "level": None,
        "min_hops": 2,
        "answerable_in_slice": True,
        "gold_pattern_in_slice": True,
    }
    assert example.gold.answers == (GoldAnswer("2014 World Series", aliases=("m.0117q3yz",)),)
    assert example.gold.sparql is not None
    assert example.gold.paths["Lou Seal"] == (
        (Relation("sports.sports_team.team_mascot", "in"), Relation("sports.sports_team.championships", "out")),
        (Relation("sports.mascot.team", "out"), Relation("sports.sports_championship_event.champion", "out")),
    )


def test_relation_paths_are_used_for_questions_without_sparql(shared_data: Path) -> None:
    examples = _slice(shared_data, "webqsp.test").examples(pytest.fail)
    without = [example for example in examples if example.gold.sparql is None]
    assert len(without) == 339
    assert sum(bool(example.gold.paths) for example in without) >= 310


def test_levels_are_read_into_meta(shared_data: Path) -> None:
    levels = Counter(
        example.question.meta["level"] for example in _slice(shared_data, "grailqa.test1000").examples(pytest.fail)
    )
    assert levels == {"zero-shot": 562, "i.i.d.": 240, "compositional": 198}


def _custom(folder: Path, rows: list[object], **more: object) -> Custom:
    (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (folder / "graph.tsv.gz").write_bytes(gzip.compress(b"m.1\tborn_in\tm.2\n"))
    return default(Custom, triples=folder / "graph.tsv.gz", questions=folder / "questions.jsonl", **more)


def _question(id: object = "q", **other: object) -> dict[str, object]:
    return {"id": id, "question": "Who?", "topic_entities": ["Ann"], "answers": ["Bo"], **other}


def test_topics_are_ids_else_names_else_mids_and_answers_by_name_have_no_id(tmp_path: Path) -> None:
    topics = [
        "Ann",
        {"id": "e1", "label": "Bo"},
        {"mid": "m.1", "label": "Cy"},
        {"name": "Di"},
        {"mid": "m.2"},
        {"id": "e3"},
    ]
    (example,) = _custom(tmp_path, [_question(topic_entities=topics, answers=topics)]).examples(pytest.fail)
    expected = [("Ann", "Ann"), ("e1", "Bo"), ("Cy", "Cy"), ("Di", "Di"), ("m.2", "m.2"), ("e3", "e3")]
    assert [(entity.id, entity.name) for entity in example.question.topic_entities] == expected
    assert [(answer.id, answer.name) for answer in example.gold.answers] == [
        (None, "Ann"),
        ("e1", "Bo"),
        (None, "Cy"),
        (None, "Di"),
        ("m.2", "m.2"),
        ("e3", "e3"),
    ]


def test_paths_use_the_ids_of_the_graph(tmp_path: Path) -> None:
    sparql = "PREFIX ns: <http://rdf.freebase.com/ns/> SELECT ?x WHERE { ns:m.1 ns:r ?x . ns:m.2 ns:s ?x }"
    topics = [{"mid": "m.1", "label": "Ann"}, {"id": "m.2", "label": "Bo"}]
    row = _question(topic_entities=topics, sparql=sparql, gold_relation_paths=[["t", "^u"], []])
    (example,) = _custom(tmp_path, [row]).examples(pytest.fail)
    outwards = (Relation("t", "out"), Relation("u", "out"))
    assert example.gold.paths == {
        "Ann": ((Relation("r", "out"),), outwards),
        "m.2": ((Relation("s", "out"),), outwards),
    }


def test_other_accepted_names_are_aliases_of_one_answer_or_further_answers(tmp_path: Path) -> None:
    rows = [
        _question("one", answers=[{"id": "m.1", "label": "Bo", "aliases": ["B."]}], answers_alt=["Bob"]),
        _question("two", answers=["Bo", 1984], answers_alt=["Cy"], answer_mids=["m.1"]),
        _question("none", answers=[]),
    ]
    one, two, none = (example.gold.answers for example in _custom(tmp_path, rows).examples(pytest.fail))
    assert one == (GoldAnswer("Bo", id="m.1", aliases=("B.", "Bob")),)
    assert two == (GoldAnswer("Bo"), GoldAnswer("1984"), GoldAnswer("Cy"))
    assert none == ()


def test_meta_holds_the_named_scalars_only(tmp_path: Path) -> None:
    rows = [_question("a", type="x", relation="gold", hops=2), _question("b"), _question("c", type=["x"])]
    rejected: list[Rejected] = []
    examples = list(_custom(tmp_path, rows, meta=["type", "hops"]).examples(rejected.append))
    assert [example.question.meta for example in examples] == [{"type": "x", "hops": 2}, {}]
    assert [(row.line, row.reason) for row in rejected] == [(3, "type: expected a text, a number, true, false or null")]


def test_a_filter_keeps_equal_values_and_refuses_an_unknown_field(tmp_path: Path) -> None:
    rows = [_question("a", hard=True), _question("b", hard=False), _question("c"), _question("d", hard=True, hops=2)]

    def kept(**wanted: object) -> list[str]:
        return [example.question.id for example in _custom(tmp_path, rows, filter=wanted).examples(pytest.fail)]

    assert kept(hard=True) == ["a", "d"]
    assert kept(hard=True, hops=2) == ["d"]
    assert kept(id="c") == ["c"]
    with pytest.raises(UserError, match=r"selects no question of .*\. Values there: hard = true, false$"):
        kept(hard=None)
    with pytest.raises(UserError, match=r"Values there: hard = true, false; hops = 2$"):
        kept(hard=False, hops=2)
    with pytest.raises(UserError, match=r"dataset\.filter: no question .* has the field hrad"):
        kept(hrad=True)


def test_malformed_questions_are_rejected(tmp_path: Path) -> None:
    rows: list[object] = [
        _question("good"),
        _question("no topics", topic_entities=None),
        _question("no name", topic_entities=[{"aliases": []}]),
        _question("empty answer", answers=[""]),
        {"id": "no question"},
        _question("good"),
        17,
    ]
    rejected: list[Rejected] = []
    assert [example.question.id for example in _custom(tmp_path, rows).examples(rejected.append)] == ["good"]
    assert [row.line for row in rejected] == [2, 3, 4, 5, 6, 7]
    assert [row.reason for row in rejected] == [
        "topic_entities must be a list",
        "a topic entity or answer has neither id, label, name nor mid",
        "answers.0.name must not be empty",
        "question is missing",
        "the id 'good' occurs earlier in this file",
        "it must be an object",
    ]


def test_a_number_counts_as_the_text_of_its_digits(tmp_path: Path) -> None:
    rows = [_question(7, topic_entities=[1990, {"id": 8}], answers=[1994, {"name": 9, "aliases": [10]}])]
    (read,) = _custom(tmp_path, rows).examples(pytest.fail)
    assert (read.question.id, [each.id for each in read.question.topic_entities]) == ("7", ["1990", "8"])
    assert [(each.name, each.aliases) for each in read.gold.answers] == [("1994", ()), ("9", ("10",))]


def test_the_graph_may_be_gzipped_and_errors_name_missing_files(tmp_path: Path) -> None:
    dataset = _custom(tmp_path, [_question()])
    assert list(dataset.triples()) == [Triple("m.1", "born_in", "m.2")]
    nowhere = default(Custom, triples=tmp_path / "none.tsv", questions=tmp_path)
    with pytest.raises(UserError, match=r"dataset\.triples=.*none\.tsv is not a file"):
        nowhere.triples()
    with pytest.raises(UserError, match=r"dataset\.questions=.* is not a file"):
        nowhere.examples(pytest.fail)


def test_unknown_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="limit"):
        default(Custom, triples=tmp_path, questions=tmp_path, limit=3)
