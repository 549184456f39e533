"""Alias files: further names of answers, and the simplified file of WebQSP with its `Aliases` (specification §10.2)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.datasets.aliases import read_aliases, with_aliases
from pipeline.datasets.cwq import CWQ
from pipeline.datasets.webqsp import WebQSP
from pipeline.errors import UserError
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.metrics import score_question
from pipeline.types import Answer, Entity, Example, Gold, GoldAnswer, Prediction, Question


def write(file: Path, content: object) -> Path:
    file.write_text(json.dumps(content))
    return file


def example(*answers: GoldAnswer) -> Example:
    topics = (Entity("m.1", "m.1"), Entity("m.2", "Two"))
    return Example(Question("q1", "cwq", "test", "who ?", topics), Gold(answers))


def test_names_ids_and_questions_are_keys() -> None:
    aliases = {
        "USA": ["America", "U.S."],
        "m.9": ["the States"],
        "who ?": ["United States"],
        "United States": ["US"],
        "m.1": ["One"],
        "m.2": ["not this"],
    }
    found = with_aliases(example(GoldAnswer("USA", "m.9", ("America",))), aliases)
    assert found.gold.answers == (GoldAnswer("USA", "m.9", ("America", "United States", "the States", "U.S.", "US")),)
    assert found.question.topic_entities == (Entity("m.1", "One"), Entity("m.2", "Two"))


def test_names_of_a_question_are_given_to_its_only_answer() -> None:
    answers = (GoldAnswer("A"), GoldAnswer("B"))
    assert with_aliases(example(*answers), {"who ?": ["C"], "B": ["b"]}).gold.answers == (
        GoldAnswer("A"),
        GoldAnswer("B", aliases=("b",)),
    )


def test_files_are_joined_plain_or_gzipped(tmp_path: Path) -> None:
    packed = tmp_path / "second.json.gz"
    packed.write_bytes(gzip.compress(json.dumps({"a": "2", "b": ["", "3"]}).encode()))
    assert read_aliases([write(tmp_path / "first.json", {"a": ["1"]}), packed]) == {"a": ["1", "2"], "b": ["3"]}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "should be an object of names"),
        ("{", "is not a JSON file"),
        ('{"a": 1}', "the value of 'a' is neither a text nor a list of texts"),
        ('{"a": [1]}', "the value of 'a' is neither a text nor a list of texts"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(UserError, match=sentence):
        read_aliases([tmp_path / "x.json"])


def test_an_alias_of_a_file_counts_as_right(tmp_path: Path) -> None:
    question = {"ID": "q", "question": "which state ?", "answer": "Russia", "topic_entity": {"m.1": "x"}}
    path = write(tmp_path / "cwq.json", [question])
    files = [
        write(tmp_path / "names.json", {"which state ?": ["Russian Federation"]}),
        write(tmp_path / "aliases.json", {"Russian Federation": ["Rossiya"]}),
    ]

    def hit(aliases: list[Path] | None) -> float | None:
        (read,) = default(CWQ, path=path, aliases=aliases).examples(pytest.fail)
        answer = Answer(predictions=(Prediction("Rossiya"),))
        return score_question(answer, read.gold, dataset="cwq", scoring=default(ScoringConfig)).hits_at_1

    assert hit(None) == 0
    assert hit(files) == 1


def test_webqsp_is_read_from_its_simplified_file(tmp_path: Path) -> None:
    rows = [
        {"ID": "W-1", "Question": "q one", "TopicEntityID": "m.1", "TopicEntityName": "One"},
        {"ID": "W-2", "Question": "q two", "TopicEntityID": ["m.1", "m.2"], "TopicEntityName": ["One"]},
        {"ID": "W-3", "Question": "q three"},
        {"ID": "W-4", "Question": "q four"},
    ]
    rows[0] |= {"Answers": ["A"], "Aliases": ["a", "A"]}
    rows[1] |= {"Answers": ["A", "B"], "Aliases": [["a"], []]}
    rows[2] |= {"Answers": ["A", "B"], "Aliases": ["b", "c", "B"]}
    rows[3] |= {"Answers": ["A", "B", "A"], "Aliases": [["a"], ["b"], ["a", "x"]]}
    (tmp_path / "webqsp_simple_test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    aliases = write(tmp_path / "aliases.json", {"B": ["Bee"], "q one": ["first"]})
    one, two, three, four = default(WebQSP, path=tmp_path, aliases=[aliases]).examples(pytest.fail)
    assert one.question.topic_entities == (Entity("m.1", "One"),)
    assert one.gold.answers == (GoldAnswer("A", aliases=("a", "first")),)
    assert two.question.topic_entities == (Entity("m.1", "One"), Entity("m.2", "m.2"))
    assert two.gold.answers == (GoldAnswer("A", aliases=("a",)), GoldAnswer("B", aliases=("Bee",)))
    assert three.gold.answers == (GoldAnswer("A", aliases=("b", "c")), GoldAnswer("B", aliases=("b", "c", "Bee")))
    assert four.gold.answers == (GoldAnswer("A", aliases=("a", "x")), GoldAnswer("B", aliases=("b", "Bee")))
    answer = Answer((Prediction("A"), Prediction("b")))
    scored = score_question(answer, three.gold, dataset="webqsp", scoring=default(ScoringConfig))
    assert (scored.recall, scored.exact_match) == (1, 1), "an alias is another name, and not another answer"
