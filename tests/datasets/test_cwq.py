"""ComplexWebQuestions in its official form and as ToG distributes it, written out from specification §10.3."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.datasets.cwq import CWQ
from pipeline.errors import UserError
from pipeline.types import Entity, GoldAnswer, Rejected, Relation

SPARQL = (
    "PREFIX ns: <http://rdf.freebase.com/ns/>\nSELECT DISTINCT ?x\nWHERE {\nFILTER (?x != ?c)\n"
    "FILTER (!isLiteral(?x) OR lang(?x) = '' OR langMatches(lang(?x), 'en'))\n"
    "?c ns:music.artist.concert_tours ns:m.010qhfmm . \n?c ns:people.person.education ?y .\n"
    "?y ns:education.education.institution ?x .\n?x ns:common.topic.notable_types ns:m.01y2hnl .\n"
    "?y ns:education.education.degree ns:m.019v9k .\n}\n"
)


def _question(**other: object) -> dict[str, object]:
    return {
        "ID": "WebQTrn-1259_1997",
        "compositionality_type": "composition",
        "created": "2018-02-13T00:42:57",
        "machine_question": "where did the artist of the tour go to college",
        "question": "Where did the tour's artist go to college?",
        "sparql": SPARQL,
        "webqsp_ID": "WebQTrn-1259",
        "webqsp_question": "where did brad paisley go to college",
        **other,
    }


ANSWERS = [
    {"answer": "Belmont University", "answer_id": "m.01qdhx", "aliases": ["Belmont"]},
    {"answer": None, "answer_id": "m.0abc", "aliases": []},
]


def test_the_official_file_takes_its_topics_from_the_query(tmp_path: Path) -> None:
    (tmp_path / "ComplexWebQuestions_test.json").write_text(json.dumps([_question(answers=ANSWERS)]))
    (example,) = default(CWQ, path=tmp_path).examples(pytest.fail)
    assert set(example.question.topic_entities) == {Entity("m.010qhfmm", "m.010qhfmm"), Entity("m.019v9k", "m.019v9k")}
    assert example.question.meta == {"type": "composition", "source": "WebQTrn-1259"}
    assert example.gold.answers == (
        GoldAnswer("Belmont University", id="m.01qdhx", aliases=("Belmont",)),
        GoldAnswer("m.0abc", id="m.0abc"),
    )
    institution = Relation("education.education.institution", "out")
    assert example.gold.paths == {
        "m.010qhfmm": (
            (Relation("music.artist.concert_tours", "in"), Relation("people.person.education", "out"), institution),
        ),
        "m.019v9k": ((Relation("education.education.degree", "in"), institution),),
    }


def test_togs_copy_names_the_topics_and_has_one_answer(tmp_path: Path) -> None:
    question = _question(answer="Belmont University", topic_entity={"m.010qhfmm": "Country Nation World Tour"})
    (tmp_path / "cwq.json.gz").write_bytes(gzip.compress(json.dumps([question]).encode()))
    (example,) = default(CWQ, path=tmp_path).examples(pytest.fail)
    assert example.question.topic_entities == (Entity("m.010qhfmm", "Country Nation World Tour"),)
    assert example.gold.answers == (GoldAnswer("Belmont University"),)
    assert set(example.gold.paths) == {"m.010qhfmm"}
    with pytest.raises(UserError, match=r"ComplexWebQuestions_dev\.json"):
        default(CWQ, path=tmp_path, split="dev").examples(pytest.fail)


def test_the_file_with_answers_is_preferred_and_questions_without_answers_are_kept(tmp_path: Path) -> None:
    for stem, answers in (("test", []), ("test_wans", ANSWERS)):
        (tmp_path / f"ComplexWebQuestions_{stem}.json").write_text(json.dumps([_question(answers=answers)]))
    assert [len(example.gold.answers) for example in default(CWQ, path=tmp_path).examples(pytest.fail)] == [2]
    bare = default(CWQ, path=tmp_path / "ComplexWebQuestions_test.json")
    assert [example.gold.answers for example in bare.examples(pytest.fail)] == [()]


def test_malformed_questions_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "cwq.json"
    file.write_text(
        json.dumps(
            [
                _question(answer="x"),
                _question(ID=None),
                _question(ID="a", answers=[{"answer": None, "answer_id": None}]),
                _question(ID="b", topic_entity=["m.1"]),
                _question(ID="c", sparql="not SPARQL"),
                _question(ID="d", sparql=None, topic_entity={}),
            ]
        )
    )
    rejected: list[Rejected] = []
    good = list(default(CWQ, path=file).examples(rejected.append))
    assert [example.question.id for example in good] == ["WebQTrn-1259_1997", "c", "d"]
    assert [dict(example.gold.paths) for example in good[1:]] == [{}, {}]
    assert [row.line for row in rejected] == [2, 3, 4]
    assert rejected[1].reason == "an answer has neither a name nor an id"


@pytest.mark.exhaustive
def test_topics_from_the_query_agree_with_those_of_togs_copy(shared_data: Path, tmp_path: Path) -> None:
    """On the real questions 1,712 of 1,760 had the same set of topics."""
    folder = shared_data / "freebase-slice"
    with gzip.open(folder / "cwq.test.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if row["topic_entities"]][:150]
    file = tmp_path / "official.json"
    file.write_text(json.dumps([_question(ID=row["id"], sparql=row["sparql"]) for row in rows]))
    examples = default(CWQ, path=file).examples(pytest.fail)
    same = sum(
        {entity.id for entity in example.question.topic_entities} == {topic["mid"] for topic in row["topic_entities"]}
        for example, row in zip(examples, rows, strict=True)
    )
    assert same >= 0.95 * len(rows)


def test_the_dataset_has_no_graph(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="kg=sparql"):
        default(CWQ, path=tmp_path).triples()
