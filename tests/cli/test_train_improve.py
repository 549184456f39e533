"""`kgqa train improve`: the rounds of runs, corrections and scores around the training.

`tests/integration/ray/test_fine_tuning.py` tests the training itself. Here a test double stands for it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.main import main
from pipeline.cli.train_improve import score_table

LINE = (
    "method=cot dataset.triples=2000 dataset.split=train llm=embedded llm.prompt_style=inputs_only "
    "llm.max_new_tokens=4  # the next line is another method\n"
)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """A test double of the training: it copies the model, and keeps the settings of each round."""
    settings: list[Mapping[str, Any]] = []

    def copy(given: Mapping[str, Any]) -> None:
        settings.append(given)
        shutil.copytree(given["model"], given["output"])

    monkeypatch.setattr("pipeline.cli.train_improve.train_model", copy)
    return settings


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@pytest.mark.exhaustive
def test_each_round_trains_the_model_of_the_last_on_all_corrections(
    llama: Path, tmp_path: Path, trained: list[Mapping[str, Any]]
) -> None:
    (tmp_path / "runs.txt").write_text(LINE, encoding="utf-8")
    output = tmp_path / "improved"
    words = [f"configurations={tmp_path / 'runs.txt'}", f"model={llama}", f"output={output}", "questions=6", "check=3"]
    assert main(["train", "improve", *words, "rounds=2"]) == 0
    assert [each["model"] for each in trained] == [str(llama), str(output / "round-1" / "model")]
    texts = [rows(Path(each["texts"])) for each in trained]
    assert texts[1] == texts[0] + rows(output / "round-2" / "corrections.jsonl")
    held_out = set((output / "held-out.txt").read_text("utf-8").split())
    assert len(held_out) == 3
    assert not held_out & {row["id"] for row in texts[1]}
    assert texts[0]
    assert [(each["round"], each["questions"]) for each in rows(output / "curve.jsonl")] == [(0, 3), (1, 3), (2, 3)]
    assert main(["train", "improve", *words, "rounds=2"]) == 0  # nothing is left to do
    assert len(trained) == 2


def test_own_calls_can_be_given_more_weight(llama: Path, tmp_path: Path, trained: list[Mapping[str, Any]]) -> None:
    (tmp_path / "runs.txt").write_text(LINE, encoding="utf-8")
    output = tmp_path / "improved"
    words = [f"configurations={tmp_path / 'runs.txt'}", f"model={llama}", f"output={output}", "questions=3", "check=3"]
    assert main(["train", "improve", *words, "rounds=1", "weight=2"]) == 0
    (round_1,) = trained
    assert rows(Path(round_1["texts"])) == 2 * rows(output / "round-1" / "corrections.jsonl")


def test_texts_of_questions_that_are_scored_are_left_out(
    llama: Path, tmp_path: Path, trained: list[Mapping[str, Any]]
) -> None:
    (tmp_path / "runs.txt").write_text(LINE, encoding="utf-8")
    words = [f"configurations={tmp_path / 'runs.txt'}", f"model={llama}", "questions=3", "check=3"]
    assert main(["train", "improve", *words, f"output={tmp_path / 'none'}", "rounds=0"]) == 0
    assert [each["round"] for each in rows(tmp_path / "none" / "curve.jsonl")] == [0]
    checked = (tmp_path / "none" / "held-out.txt").read_text("utf-8").splitlines()
    texts = "".join(json.dumps({"id": id, "text": "x"}) + "\n" for id in ["another", *checked])
    (tmp_path / "texts.jsonl").write_text(texts, encoding="utf-8")
    more = [f"output={tmp_path / 'improved'}", "rounds=1", f"texts=[{tmp_path / 'texts.jsonl'}]"]
    assert main(["train", "improve", *words, *more]) == 0
    (round_1,) = trained
    mixed = {row["id"] for row in rows(Path(round_1["texts"]))}
    assert "another" in mixed
    assert not mixed & set(checked)


def test_a_test_split_is_refused_before_anything_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs.txt").write_text(LINE.replace(" dataset.split=train", ""), encoding="utf-8")
    words = [f"configurations={tmp_path / 'runs.txt'}", "model=none", f"output={tmp_path / 'improved'}"]
    assert main(["train", "improve", *words]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "dataset.split=test is for evaluation, not for training: give another dataset.split in each line" in said
    assert not (tmp_path / "improved").exists()


def test_the_table_has_a_column_for_each_round() -> None:
    scores = [
        {"round": number, "method": method, "dataset": "metaqa-1hop", "hits_at_1": number / 2}
        for number in (0, 1)
        for method in ("srp", "r3")
    ]
    table = score_table(scores)
    assert [column.header for column in table.columns] == ["method", "dataset", "0", "1"]
    assert table.row_count == 2
