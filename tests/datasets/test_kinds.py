"""What a dataset is, whatever its name, and the defaults that follow it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline import config
from pipeline.cli.commands import COMMANDS
from pipeline.errors import UserError
from tests.support import refuse, sampled

CUSTOM = ("dataset=custom", "dataset.triples=facts.tsv")


@pytest.mark.parametrize(
    ("words", "kind", "depth"),
    sampled(
        [
            (["dataset=webqsp", "dataset.name=mine"], "webqsp", 2),
            (["dataset=cwq"], "cwq", 4),
            (["dataset=grailqa"], "grailqa", 4),
            (["dataset=metaqa", "dataset.hops=3"], "metaqa", 3),
            (["dataset=grbench"], "grbench", 4),
            (["dataset=rog", "dataset.name=rog-webqsp"], "webqsp", 2),
            (["dataset=rog", "dataset.path=hf://datasets/someone/RoG-cwq"], "cwq", 4),
            ([*CUSTOM, "dataset.questions=/data/webqsp.test.jsonl.gz"], "webqsp", 2),
            ([*CUSTOM, "dataset.questions=/webqsp/a/b/questions.jsonl"], None, 4),
            ([*CUSTOM, "dataset.questions=q.jsonl", "dataset.kind=webqsp"], "webqsp", 2),
            (["dataset=synthetic"], None, 4),
        ],
        every=4,
    ),
)
def test_args_depth_follows_what_the_dataset_is(words: list[str], kind: str | None, depth: int) -> None:
    path = [] if words[0] in ("dataset=custom", "dataset=synthetic") else ["dataset.path=x"]
    for name in {command.config_name for command in COMMANDS.values()} & {"config", "estimate", "reproduce"}:
        composed = config.compose([*path, *words, "experiment=arg_exhaustive"], name=str(name))
        assert composed["dataset"].get("kind") == kind
        assert composed["method"]["max_hops"] == depth


def test_a_depth_that_is_given_does_not_follow_the_dataset() -> None:
    words = ["dataset=webqsp", "dataset.path=x"]
    assert config.compose([*words, "method=arg", "method.depth=1"])["method"]["max_hops"] == 1
    assert config.compose([*words, "experiment=arg_depth_4"])["method"]["max_hops"] == 4


def test_questions_say_what_their_dataset_is(tmp_path: Path) -> None:
    row = {"id": "1", "question": "who?", "topic_entities": ["Ann"], "answers": ["Bob"]}
    file = tmp_path / "cwq.jsonl"
    file.write_text(json.dumps(row))
    dataset = config.build("dataset", config.compose([*CUSTOM, f"dataset.questions={file}"]))
    (example,) = dataset.examples(refuse)
    assert (example.question.dataset, example.question.kind) == ("custom", "cwq")


def test_an_unknown_kind_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"dataset.kind='squad' is wrong"):
        config.check(config.compose([*CUSTOM, "dataset.questions=q.jsonl", "dataset.kind=squad"]), ("dataset",))
