"""Labelled questions: held-out questions are marked, and test splits are refused."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.errors import UserError
from pipeline.simulation.world import SyntheticWorld
from pipeline.training.labelled import LabelledQuestion, LabelledQuestions, read_held_out
from pipeline.types import Example
from tests.support import refuse


def world(split: str) -> SyntheticWorld:
    return default(SyntheticWorld, split=split, triples=2_000, questions=12)


def labelled(source: LabelledQuestions) -> list[LabelledQuestion]:
    questions = [example.question for example in source.examples(refuse)]
    assert all(isinstance(question, LabelledQuestion) for question in questions)
    return questions  # type: ignore[return-value]


def test_each_question_carries_its_gold() -> None:
    source = default(LabelledQuestions, dataset=world("train"))
    examples = list(world("train").examples(refuse))
    assert [question.gold for question in labelled(source)] == [example.gold for example in examples]
    assert [question.id for question in labelled(source)] == [example.question.id for example in examples]
    assert (source.name, source.split, source.count()) == ("synthetic", "train", 12)
    assert list(source.triples()) == list(world("train").triples())
    one = Example(labelled(source)[0], examples[0].gold)
    assert pickle.loads(pickle.dumps(one)) == one, "workers receive it by pickling"


def test_a_test_split_is_refused_unless_allowed() -> None:
    with pytest.raises(UserError, match=r"dataset.split=test is for evaluation.*material.allow_test_split=true"):
        default(LabelledQuestions, dataset=world("test"))
    assert len(labelled(default(LabelledQuestions, dataset=world("test"), allow_test_split=True))) == 12


def test_questions_are_held_out_by_id_and_by_normalised_text(tmp_path: Path) -> None:
    by_text, by_id, by_row, as_metaqa, *others = labelled(default(LabelledQuestions, dataset=world("train")))
    plain, rows, zipped = tmp_path / "ids.txt", tmp_path / "rows.jsonl", tmp_path / "qa_test.txt.gz"
    plain.write_text(f"\n{by_text.text.upper()}\n{by_id.id}\nsomething else\n")
    rows.write_text(json.dumps({"id": "another", "question": f"  {by_row.text} "}) + "\n")
    topic = as_metaqa.topic_entities[0].name
    zipped.write_bytes(gzip.compress(f"{as_metaqa.text.replace(topic, f'[{topic}]')}\tan answer|another".encode()))
    source = default(LabelledQuestions, dataset=world("train"), held_out=(plain, rows, zipped))
    held = {question.id for question in labelled(source) if question.held_out}
    assert held == {by_text.id, by_id.id, by_row.id, as_metaqa.id}
    assert len(others) == 8


@pytest.mark.parametrize("line", [b"{no json", b"\xff\xfe"])
def test_an_unreadable_line_is_a_user_error(line: bytes, tmp_path: Path) -> None:
    file = tmp_path / "held.jsonl"
    file.write_bytes(b'{"id": "q1"}\n' + line)
    with pytest.raises(UserError, match=r"held.jsonl, line 2: expected a question, an id or a JSON object"):
        read_held_out([file])
