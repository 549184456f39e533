"""WebQSP in its official form and as ToG distributes it, written out from specification §10.2."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.datasets.webqsp import WebQSP
from pipeline.errors import UserError
from pipeline.types import Entity, GoldAnswer, Rejected, Relation


def _sparql(relation: str) -> str:
    return (
        "PREFIX ns: <http://rdf.freebase.com/ns/>\nSELECT DISTINCT ?x\nWHERE {\nFILTER (?x != ns:m.0xdhj)\n"
        "FILTER (!isLiteral(?x) OR lang(?x) = '' OR langMatches(lang(?x), 'en'))\n"
        f"ns:m.0xdhj ns:{relation} ?x .\n}}\n"
    )


def _entity(mid: str, name: str | None) -> dict[str, object]:
    return {"AnswerType": "Entity", "AnswerArgument": mid, "EntityName": name}


def _parse(quality: str, relation: str, answers: list[dict[str, object]]) -> dict[str, object]:
    return {
        "ParseId": "WebQTest-0.P0",
        "AnnotatorId": 0,
        "AnnotatorComment": {"ParseQuality": quality, "QuestionQuality": "Good", "Confidence": "Normal"},
        "Sparql": _sparql(relation),
        "PotentialTopicEntityMention": "st louis park",
        "TopicEntityName": "St. Louis Park",
        "TopicEntityMid": "m.0xdhj",
        "InferentialChain": [relation],
        "Constraints": [],
        "Time": None,
        "Order": None,
        "Answers": answers,
    }


def _question(id: str = "WebQTest-0", **other: object) -> dict[str, object]:
    year = {"AnswerType": "Value", "AnswerArgument": "1954", "EntityName": None}
    parses = [
        _parse("Partial", "place.county", [_entity("m.0nhmw", "Hennepin County"), _entity("m.0zz", None)]),
        _parse("Complete", "place.part_of", [_entity("m.0nhmw", "Hennepin County"), year]),
    ]
    return {
        "QuestionId": id,
        "RawQuestion": "what county is St. Louis Park in?",
        "ProcessedQuestion": "what county is st. louis park in",
        "Parses": parses,
        **other,
    }


def _official(folder: Path, questions: list[object]) -> Path:
    content = {"Version": "1.0", "FreebaseVersion": "2015-08-09", "Questions": questions}
    (folder / "WebQSP.test.json").write_text(json.dumps(content))
    return folder


def test_the_official_file_is_read(tmp_path: Path) -> None:
    (example,) = default(WebQSP, path=_official(tmp_path, [_question()])).examples(pytest.fail)
    assert example.question.id == "WebQTest-0"
    assert example.question.text == "what county is St. Louis Park in?"
    assert example.question.topic_entities == (Entity("m.0xdhj", "St. Louis Park"),)
    assert example.question.meta == {"hops": 1, "constraints": False}
    assert example.gold.answers == (
        GoldAnswer("Hennepin County", id="m.0nhmw"),
        GoldAnswer("m.0zz", id="m.0zz"),
        GoldAnswer("1954"),
    )
    assert example.gold.paths == {"m.0xdhj": ((Relation("place.county", "out"),), (Relation("place.part_of", "out"),))}
    assert example.gold.sparql == _sparql("place.part_of")


def test_best_parse_takes_the_first_complete_parse(tmp_path: Path) -> None:
    bad = _question("WebQTest-1")
    bad["Parses"] = [{**parse, "AnnotatorComment": {"ParseQuality": "Partial"}} for parse in bad["Parses"]]
    dataset = default(WebQSP, path=_official(tmp_path, [_question(), bad]), webqsp_gold="best_parse")
    complete, first = dataset.examples(pytest.fail)
    assert complete.gold.answers == (GoldAnswer("Hennepin County", id="m.0nhmw"), GoldAnswer("1954"))
    assert complete.gold.paths == {"m.0xdhj": ((Relation("place.part_of", "out"),),)}
    assert first.gold.answers == (GoldAnswer("Hennepin County", id="m.0nhmw"), GoldAnswer("m.0zz", id="m.0zz"))


def test_togs_copy_is_an_array_with_its_own_topics(tmp_path: Path) -> None:
    question = _question(topic_entity={"m.0xdhj": "Saint Louis Park", "m.02": "County"})
    (tmp_path / "WebQSP.json.gz").write_bytes(gzip.compress(json.dumps([question]).encode()))
    (example,) = default(WebQSP, path=tmp_path).examples(pytest.fail)
    assert example.question.topic_entities == (Entity("m.0xdhj", "Saint Louis Park"), Entity("m.02", "County"))
    with pytest.raises(UserError, match=r"looked for WebQSP\.train\.json"):
        default(WebQSP, path=tmp_path, split="train").examples(pytest.fail)


def test_questions_without_parses_answers_topic_or_query_are_kept(tmp_path: Path) -> None:
    bare = {"QuestionId": "b", "RawQuestion": "?", "Parses": [{"Answers": [], "TopicEntityMid": None, "Sparql": None}]}
    dataset = default(WebQSP, path=_official(tmp_path, [{**bare, "QuestionId": "a", "Parses": []}, bare]))
    for example in dataset.examples(pytest.fail):
        assert example.question.topic_entities == ()
        assert example.gold.answers == ()
        assert example.gold.paths == {}
        assert example.gold.sparql is None


def test_malformed_questions_are_rejected_with_their_position(tmp_path: Path) -> None:
    wrong = _question("w")
    wrong["Parses"][1]["Answers"][1]["AnswerArgument"] = None
    rejected: list[Rejected] = []
    path = _official(tmp_path, [_question(), "text", {"QuestionId": "x"}, wrong, _question()])
    assert len(list(default(WebQSP, path=path).examples(rejected.append))) == 1
    assert [row.line for row in rejected] == [2, 3, 4, 5]
    assert rejected[1].reason == "RawQuestion is missing"
    assert rejected[2].reason.startswith("Parses.1.Answers.1.AnswerArgument must be a text")
    assert rejected[3].reason == "the id 'WebQTest-0' occurs earlier in this file"


def test_the_dataset_has_no_graph(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="kg=sparql"):
        default(WebQSP, path=tmp_path).triples()
