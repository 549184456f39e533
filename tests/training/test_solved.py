"""Questions with their solutions: what is held out, and what is refused."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest

from pipeline.datasets.sample import SampleWorld
from pipeline.errors import UserError
from pipeline.training.solved import Solved, SolvedQuestions, read_held_out
from pipeline.types import Example
from tests.support import refuse


def world(split: str) -> SampleWorld:
    return SampleWorld(split=split, size=2_000, questions=12)  # type: ignore[call-arg, arg-type]


def solved(material: SolvedQuestions) -> list[Solved]:
    questions = [example.question for example in material.examples(refuse)]
    assert all(isinstance(question, Solved) for question in questions)
    return questions  # type: ignore[return-value]


def test_each_question_is_the_other_ones_with_its_gold() -> None:
    material = SolvedQuestions(dataset=world("train"))
    examples = list(world("train").examples(refuse))
    assert [question.gold for question in solved(material)] == [example.gold for example in examples]
    assert [question.id for question in solved(material)] == [example.question.id for example in examples]
    assert (material.name, material.split, material.count()) == ("sample", "train", 12)
    assert list(material.triples()) == list(world("train").triples())
    one = Example(solved(material)[0], examples[0].gold)
    assert pickle.loads(pickle.dumps(one)) == one, "it travels to the workers"


def test_a_test_split_is_refused_unless_asked_for() -> None:
    with pytest.raises(UserError, match=r"dataset.split=test is what models are measured on.*material.test_split=true"):
        SolvedQuestions(dataset=world("test"))
    assert len(solved(SolvedQuestions(dataset=world("test"), test_split=True))) == 12


def test_held_out_by_id_and_by_text_in_any_form(tmp_path: Path) -> None:
    by_text, by_id, by_row, as_metaqa, *others = solved(SolvedQuestions(dataset=world("train")))
    plain, rows, zipped = tmp_path / "ids.txt", tmp_path / "rows.jsonl", tmp_path / "qa_test.txt.gz"
    plain.write_text(f"\n{by_text.text.upper()}\n{by_id.id}\nsomething else\n")
    rows.write_text(json.dumps({"id": "another", "question": f"  {by_row.text} "}) + "\n")
    topic = as_metaqa.topic_entities[0].name
    zipped.write_bytes(gzip.compress(f"{as_metaqa.text.replace(topic, f'[{topic}]')}\tan answer|another".encode()))
    material = SolvedQuestions(dataset=world("train"), held_out=(plain, rows, zipped))
    held = {question.id for question in solved(material) if question.held_out}
    assert held == {by_text.id, by_id.id, by_row.id, as_metaqa.id}
    assert len(others) == 8


@pytest.mark.parametrize("line", [b"{no json", b"\xff\xfe"])
def test_a_line_that_says_nothing_is_told(line: bytes, tmp_path: Path) -> None:
    file = tmp_path / "held.jsonl"
    file.write_bytes(b'{"id": "q1"}\n' + line)
    with pytest.raises(UserError, match=r"held.jsonl, line 2: neither a question nor a JSON object"):
        read_held_out([file])
