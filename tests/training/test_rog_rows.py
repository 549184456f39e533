"""`kgqa collect rog`: rows for RoG's planner and reader (specification §7.4)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipeline import config
from pipeline.cli.main import main
from pipeline.datasets.interface import Dataset
from pipeline.errors import FAILED_RUN, ServiceError, UserError
from pipeline.methods.rog.plan import PlanPath
from pipeline.methods.rog.read import ReadPaths
from pipeline.normalisation import normalise
from pipeline.training.labelled import LabelledQuestion
from pipeline.training.rog import RoGCollection
from pipeline.training.sft.texts import read_texts
from pipeline.types import Entity, Gold, GoldAnswer, RelationPath
from tests.methods.support import DictionaryGraph, ScriptedTools, literal
from tests.support import refuse

WORLD = ("dataset=synthetic", "dataset.split=train", "dataset.triples=4000", "run.limit=40")


def collection(**keys: Any) -> RoGCollection:
    composed = config.compose(["output=x"], name="collect_rog")["collect"]
    built: RoGCollection = config.build("collect", {"collect": {**composed, **keys}})
    return built


def collect(folder: Path, *words: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Run the command; return the rows and the report."""
    output = folder / "rows.jsonl"
    assert main(["collect", "rog", f"output={output}", f"run.dir={folder / 'run'}", *words]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    return rows, json.loads(output.with_suffix(".report.json").read_text())


def asked(*answers: str, topics: tuple[str, ...] = ("A",), held_out: bool = False) -> LabelledQuestion:
    gold = Gold(tuple(GoldAnswer(name) for name in answers))
    entities = tuple(Entity(id, id) for id in topics)
    return LabelledQuestion("q", "test", "train", "which?", entities, gold=gold, held_out=held_out)


async def collected(question: LabelledQuestion, facts: list[Any], **keys: Any) -> dict[str, Any]:
    script = ScriptedTools(DictionaryGraph(facts))
    await collection(**keys).answer(question, script.tools)
    assert not script.model.prompts, "no model is asked"
    (event,) = [payload for name, payload in script.events if name in {"collected", "rejected"}]
    return event


FACTS = [
    ("A", "near", "B"),
    ("B", "also", "D"),
    ("A", "first", "C"),
    ("D", "second", "C"),
    ("A", "other", "E"),
    ("A", "near", "F"),
]


async def test_every_answer_has_its_own_shortest_paths() -> None:
    event = await collected(asked("B", "D"), FACTS)
    assert event["paths"] == [("near",), ("first", "second"), ("near", "also")]
    assert event["right"] == [1, 1, 1]
    assert set(event["lines"]) == {
        "A -> near -> B",
        "A -> near -> F",
        "A -> first -> C -> second -> D",
        "A -> near -> B -> also -> D",
    }, "all that the paths reach, not only what ends in an answer"
    assert event["answers"] == ["B", "D"]


async def test_a_path_may_end_in_a_literal_and_is_bounded() -> None:
    facts = [*FACTS, ("D", "year", literal("1999"))]
    assert (await collected(asked("1999"), facts))["paths"] == [("first", "second", "year"), ("near", "also", "year")]
    assert (await collected(asked("1999"), facts, max_path_len=2))["paths"] == []


async def test_paths_of_all_topic_entities() -> None:
    assert (await collected(asked("B", topics=("A", "D")), FACTS))["paths"] == [("near",), ("also",)]


async def test_what_does_not_fit_is_counted() -> None:
    facts = [("A", "r", f"B{number:02}") for number in range(60)]
    event = await collected(asked("B00"), facts, reader_prompt_tokens=100)
    assert event["instances"] == 60
    assert event["dropped"] == 60 - len(event["lines"]) > 0


@pytest.mark.parametrize(
    ("question", "reason"),
    [(asked("B", held_out=True), "held out"), (asked("B", topics=()), "no topic entity"), (asked(), "no answer")],
)
async def test_questions_without_rows(question: LabelledQuestion, reason: str) -> None:
    assert await collected(question, FACTS) == {"reason": reason}


def test_the_rows_are_the_prompts_of_the_method(tmp_path: Path) -> None:
    rows, report = collect(tmp_path, *WORLD)
    dataset: Dataset = config.build("dataset", config.compose(list(WORLD)))
    examples = {example.question.id: example for example in dataset.examples(refuse)}
    for row in rows:
        example = examples[row["id"]]
        *turns, reply = row["messages"]
        if row["role"] == "rog.plan":
            prompt: Any = PlanPath(example.question)
            assert prompt.parse(reply["content"])
        else:
            lines = turns[-1]["content"].partition("Paths:\n")[2].partition("\n\nQuestion:")[0].splitlines()
            prompt = ReadPaths(example.question, False, tuple(lines), (), {})
            read = {normalise(text) for text in prompt.parse(reply["content"]).texts}
            assert read == {normalise(answer.name) for answer in example.gold.answers}
        assert turns == [message._asdict() for message in prompt.messages()]
        assert reply["role"] == "assistant"
    assert Counter(row["role"] for row in rows) == report["rows"]
    assert report["rows"]["rog.read"] == report["questions"] == 40
    assert report["rows"]["rog.plan"] == sum(report["path_lengths"].values()) > 40
    assert len(list(read_texts([tmp_path / "rows.jsonl"]))) == len(rows), "they can be trained on"
    keys = [json.dumps(row) for row in rows if row["role"] == "rog.plan"]
    assert len(set(keys)) == len(keys), "one row for each distinct path"


def test_the_published_data_have_a_row_for_each_chain(tmp_path: Path) -> None:
    distinct, _ = collect(tmp_path / "distinct", *WORLD)
    rows, _ = collect(tmp_path / "all", *WORLD, "collect.dedupe_paths=false")
    assert len(rows) > len(distinct)
    assert {json.dumps(row) for row in rows} == {json.dumps(row) for row in distinct}


def names(path: RelationPath) -> tuple[str, ...]:
    return tuple(relation.name for relation in path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_on_metaqa_the_path_of_the_question_is_among_them(hops: int, shared_data: Path, tmp_path: Path) -> None:
    words = ["dataset=metaqa", f"dataset.path={shared_data / 'metaqa'}", f"dataset.hops={hops}", "dataset.split=dev"]
    rows, _ = collect(tmp_path, *words, "run.limit=30")
    dataset: Dataset = config.build("dataset", config.compose(words))
    planned: dict[str, set[tuple[str, ...]]] = {}
    for row in rows:
        if row["role"] == "rog.plan":
            planned.setdefault(row["id"], set()).add(PlanPath(asked()).parse(row["messages"][-1]["content"]))
    examples = {example.question.id: example for example in dataset.examples(refuse)}
    gold = {id: [path for known in example.gold.paths.values() for path in known] for id, example in examples.items()}
    hits = [not paths.isdisjoint(map(names, gold[id])) for id, paths in planned.items()]
    assert len(planned) == 30
    assert sum(hits) >= (30 if hops < 3 else 20), "an answer to three hops may also be nearer"


def test_a_test_split_is_refused_and_questions_are_held_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", "rog", f"output={tmp_path / 'x.jsonl'}", "dataset=synthetic", "dataset.split=test"]) == 2
    assert "dataset.split=test is for evaluation" in capsys.readouterr().err
    rows, _ = collect(tmp_path / "all", *WORLD)
    held = tmp_path / "held.txt"
    held.write_text(rows[0]["id"])
    rest, report = collect(tmp_path / "rest", *WORLD, f"material.held_out=[{held}]")
    assert report["rejected"] == {"held out": 1}
    assert rest == [row for row in rows if row["id"] != rows[0]["id"]]


def test_the_recipe_is_that_of_the_paper() -> None:
    """Three passes over the rows of both roles, 128 at a time (specification §7.4)."""
    recipe = config.compose(["output=o", "texts=t", "model=m"], name="train_rog")["recipe"]
    assert (recipe["epochs"], recipe["learning_rate"], recipe["batch_size"]) == (3, 2e-5, 128)
    assert (recipe["schedule"], recipe["warmup"], recipe["weight_decay"]) == ("cosine", 0.03, 0.0)
    assert (recipe["max_tokens"], recipe["precision"], recipe["adapter"]) == (2048, "bfloat16", None)
    assert recipe["reflection_tokens"] is False


def test_wrong_values_are_refused() -> None:
    for wrong in ({"max_path_len": 0}, {"render": "graph"}, {"templates": "/no/file"}):
        with pytest.raises(UserError):
            collection(**wrong)


def test_failed_questions_are_named_and_decide_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = RoGCollection.answer

    async def fail_often(self: RoGCollection, question: LabelledQuestion, tools: Any) -> Any:
        if int(question.id.rpartition("-")[2]) % 2:
            raise ServiceError("no server answers")
        return await answer(self, question, tools)

    monkeypatch.setattr(RoGCollection, "answer", fail_often)
    words = (*WORLD, "run.limit=10", f"run.dir={tmp_path / 'run'}", f"output={tmp_path / 'rows.jsonl'}")
    assert main(["collect", "rog", *words]) == FAILED_RUN
    said = " ".join(capsys.readouterr().out.split())
    assert "5 questions failed; run.retry_failed=true runs them again: 5 × ServiceError: no server answers" in said
    assert "more questions failed (50.0 %) than run.max_failed allows: exit code 3" in said
    assert main(["collect", "rog", *words, "run.max_failed=0.6"]) == 0
