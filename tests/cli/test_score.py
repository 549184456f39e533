"""`kgqa score`: a run from its traces, and files of predictions."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from pipeline.config import default
from pipeline.simulation.world import SyntheticWorld
from pipeline.types import Example
from tests.cli.support import Kgqa
from tests.support import refuse, rewrite_shard

DATASET = ("dataset=synthetic", "dataset.triples=2000", "dataset.questions=8", "evaluation.bootstrap_resamples=100")


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return list(default(SyntheticWorld, triples=2000, questions=8).examples(refuse))


def gold(example: Example) -> dict[str, object]:
    return {"id": example.question.id, "answers": [answer.name for answer in example.gold.answers]}


def predictions(rows: list[dict[str, object]]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def test_a_file_without_its_key_is_answered_with_the_key(kgqa: Kgqa, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.touch()
    said = kgqa("score", str(file)).sentence
    assert said == f"{file} is a file: kgqa score predictions={file} scores a file of predictions"


@pytest.mark.parametrize("word", ["predictions=nowhere.jsonl", "name=mine", "peers=true"])
def test_a_run_and_a_key_of_predictions_are_refused(word: str, finished: Path, kgqa: Kgqa) -> None:
    said = kgqa("score", finished, word).sentence
    assert said == f"{word} is about a file of predictions: give a run or predictions=FILE, not both"


def test_a_table_says_which_files_gave_gold_answers_further_names(kgqa: Kgqa, tmp_path: Path) -> None:
    row = {"ID": "W-1", "Question": "who?", "TopicEntityID": "m.1", "TopicEntityName": "One", "Answers": ["Ann"]}
    (tmp_path / "webqsp_simple_test.jsonl").write_text(json.dumps(row))
    (tmp_path / "names.json").write_text(json.dumps({"Ann": ["Anne"]}))
    (tmp_path / "mine.jsonl").write_text('{"id": "W-1", "answers": ["Anne"]}')
    words = ("predictions=mine.jsonl", "dataset=webqsp", "dataset.path=.")
    with_names = kgqa("score", *words, "dataset.aliases=[names.json]")
    assert "gold answers have further names from dataset.aliases: names.json" in with_names.out
    assert "further names" not in kgqa("score", *words).out


def test_a_table_of_predictions_does_not_say_what_made_them(
    examples: list[Example], kgqa: Kgqa, tmp_path: Path
) -> None:
    (tmp_path / "mine.jsonl").write_bytes(predictions(list(map(gold, examples))))
    assert kgqa("score", "predictions=mine.jsonl", "table=t.csv", *DATASET).code == 0
    (row,) = csv.DictReader((tmp_path / "t.csv").read_text("utf-8").splitlines())
    assert (row["method"], row["Hits@1"]) == ("mine", "100")
    assert "answered by" not in row


@pytest.mark.parametrize("word", ["dataset.questions=8", "dataset=custom"])
def test_a_key_that_changes_no_score_of_a_run_is_refused(word: str, finished: Path, kgqa: Kgqa) -> None:
    said = kgqa("score", finished, word).sentence
    assert said.startswith(f"{word} changes nothing here: a run has its questions and gold answers in its traces.")


def test_scoring_a_run_again_changes_nothing(finished: Path, kgqa: Kgqa, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    before = json.loads((finished / "summary.json").read_text())
    written = (tmp_path / "copy" / "summary.json").stat().st_ino
    assert 0 < before["points"][0]["hits_at_1"] < 1
    scored = kgqa("score", "copy")
    assert (tmp_path / "copy" / "summary.json").stat().st_ino == written, "another user may only read the folder"
    assert json.loads((tmp_path / "copy" / "summary.json").read_text()) == before
    assert scored.code == 0
    again = kgqa("evaluate", "copy/run.yaml").out.replace(str(tmp_path / "copy"), "copy")
    assert again == scored.out, "the same table"


def test_scoring_a_run_in_another_way(finished: Path, kgqa: Kgqa, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    shown = kgqa("score", "copy", "evaluation.confidence=0.9").out
    assert "90 % intervals" in shown
    assert "scored by evaluation.confidence=0.9 here only: the run keeps the scores by its own keys" in shown
    (point,) = json.loads(kgqa("score", "copy", "evaluation.confidence=0.9", "json=true").out)["points"]
    assert (tmp_path / "copy" / "summary.json").read_bytes() == (finished / "summary.json").read_bytes()
    before = json.loads((finished / "summary.json").read_text())["points"][0]
    assert point["confidence"] == 0.9
    assert point["hits_at_1"] == before["hits_at_1"]
    low, high = point["intervals"]["hits_at_1"]
    assert before["intervals"]["hits_at_1"][0] <= low < high <= before["intervals"]["hits_at_1"][1]


def test_a_run_in_progress_is_scored_as_far_as_it_is(finished: Path, kgqa: Kgqa, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    (tmp_path / "copy" / "summary.json").unlink()
    first, *others = sorted((tmp_path / "copy" / "traces").iterdir())
    for shard in others:
        shard.unlink()
    found = json.loads(kgqa("score", "copy", "json=true").out)
    answers = pl.read_parquet(first)
    assert found["complete"] is False
    assert found["points"][0]["questions"] == answers.height
    assert found["points"][0]["hits_at_1"] == pytest.approx(answers["hits_at_1"].mean())
    assert f"copy is not complete: only the {answers.height:,} questions in its finished" in found["notes"][0]
    assert not (tmp_path / "copy" / "summary.json").exists()


def test_a_run_with_reflection_reports_its_effect(evaluate: Kgqa, kgqa: Kgqa, tmp_path: Path) -> None:
    ran = evaluate("method=r3", "llm=oracle", "llm.error_rate=0.3")
    before = json.loads((tmp_path / "run" / "summary.json").read_text())
    (point,) = before["points"]
    rate = f"{100 * point['corrected']:.1f} % of {point['scored']['corrected']} wrong ones corrected"
    assert f"first answers of r3 (oracle): {rate}, " in " ".join(ran.out.split())
    assert kgqa("score", "run").out == ran.out
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == before


def test_a_run_of_an_older_version_is_refused(finished: Path, kgqa: Kgqa, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "old")
    for shard in (tmp_path / "old" / "traces").iterdir():
        rewrite_shard(shard, pl.read_parquet(shard).drop("initial_answers", "corrected"))
    assert "without the column initial_answers: run its questions again" in kgqa("score", "old").sentence


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.jsonl.gz"])
def test_the_gold_answers_score_full_marks(name: str, examples: list[Example], kgqa: Kgqa, tmp_path: Path) -> None:
    content = predictions([gold(example) for example in examples])
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    scored = kgqa("score", f"predictions={name}", "name=mine", *DATASET)
    assert scored.code == 0
    assert "mine" in scored.out
    assert "synthetic, 8" in scored.out
    assert scored.out.count("67.6–100") >= 2, "8 of 8 questions"
    assert not (tmp_path / f"{name}.rejected.jsonl").exists()


def test_predictions_that_do_not_match_are_reported_below_the_table(
    examples: list[Example], kgqa: Kgqa, tmp_path: Path
) -> None:
    rows = [gold(example) for example in examples[:4]]
    lines = [*predictions(rows).splitlines(), b'{"id": "nobody", "answers": ["x"]}', b'{"answers": 1}']
    (tmp_path / "mine.jsonl").write_bytes(b"\n".join(lines))
    scored = kgqa("score", "predictions=mine.jsonl", *DATASET)
    missing, unknown, rejected = scored.out.splitlines()[-3:]
    assert missing.startswith("4 questions without a readable prediction, counted as wrong: ")
    assert unknown == "1 prediction ignored, for no question of the dataset: nobody"
    assert (
        rejected
        == f"1 row of mine.jsonl could not be read: {tmp_path}/mine.jsonl.rejected.jsonl lists them with reasons"
    )
    (row,) = map(json.loads, (tmp_path / "mine.jsonl.rejected.jsonl").read_text().splitlines())
    assert (row["file"], row["line"]) == ("mine.jsonl", 6)
    (tmp_path / "theirs").mkdir()
    shutil.copy(tmp_path / "mine.jsonl", tmp_path / "theirs/theirs.jsonl")
    kgqa("score", "predictions=theirs/theirs.jsonl", *DATASET)
    assert [file.name for file in (tmp_path / "theirs").iterdir()] == ["theirs.jsonl"], "nothing beside the input"
    assert (tmp_path / "theirs.jsonl.rejected.jsonl").is_file()
    assert "50.0" in scored.out


def test_a_strict_score_stops_at_the_first_bad_row(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"answers": 1}')
    assert "mine.jsonl, line 1: " in kgqa("score", "predictions=mine.jsonl", "dataset.strict=true", *DATASET).sentence


def test_predictions_for_another_dataset(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"id": "WebQTest-0", "answers": []}')
    said = kgqa("score", "predictions=mine.jsonl", *DATASET).sentence
    assert (
        "no prediction has the id of a question in the dataset: the dataset has ids like 'sample-test-000000'" in said
    )


def test_the_scoring_rules_of_other_systems(examples: list[Example], kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_bytes(predictions([gold(example) for example in examples]))
    assert (
        "scored by the rules of published code" in kgqa("score", "predictions=mine.jsonl", "peers=true", *DATASET).out
    )


def test_a_part_of_the_questions_is_selected_by_their_predictions(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "x", "answers": []}')
    refused = kgqa("score", "predictions=p.jsonl", "run.limit=4").sentence
    assert refused == "run.limit=4 is a key of runs: missing=left_out scores only the questions that have a prediction"
