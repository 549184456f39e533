"""The training texts of the bundled model. `tests/integration/ray/test_fine_tuning.py` tests the training."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import transformers

from pipeline import config
from pipeline.cli.main import main
from pipeline.cli.train_bundled_model import improvement, prepare, stages
from pipeline.errors import UserError
from pipeline.training.bundled_sources import SOURCES

FACTS = """\
Nine Lanterns|directed_by|Ada Orsa
Nine Lanterns|starred_actors|Bo Vask
Nine Lanterns|release_year|1994
The Salt Road|directed_by|Ada Orsa
The Salt Road|starred_actors|Cy Thorn
The Salt Road|release_year|2001
"""
QUESTIONS = {
    1: ("who directed [Nine Lanterns]\tAda Orsa", "movie_to_director"),
    2: ("when did the films of [Ada Orsa] come out\t1994|2001", "director_to_movie_to_year"),
    3: ("who acts in films of the director of [Nine Lanterns]\tCy Thorn", "movie_to_director_to_movie_to_actor"),
}
ONE_DRAW = "parts.calls.draws=[1]"
"""Without the later draws, of other questions."""
HELD_OUT = "which film has [Bo Vask]\tNine Lanterns"


@pytest.fixture
def metaqa(tmp_path: Path) -> Path:
    """A MetaQA with two films; one of its dev questions is also a test question."""
    folder = tmp_path / "MetaQA"
    for hops, (question, type) in QUESTIONS.items():
        vanilla = folder / f"{hops}-hop" / "vanilla"
        vanilla.mkdir(parents=True)
        dev = [question, HELD_OUT] if hops == 1 else [question]
        (vanilla / "qa_dev.txt").write_text("\n".join(dev) + "\n", encoding="utf-8")
        (vanilla / "qa_test.txt").write_text(HELD_OUT + "\n", encoding="utf-8")
        types = [type, "actor_to_movie"] if hops == 1 else [type]
        (folder / f"{hops}-hop" / "qa_dev_qtype.txt").write_text("\n".join(types) + "\n", encoding="utf-8")
    (folder / "kb.txt").write_text(FACTS, encoding="utf-8")
    return folder


@pytest.mark.exhaustive
def test_texts_are_collected_and_an_untrained_llama_is_created(
    metaqa: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.cli.train_bundled_model._KNOWN_PATHS", {hops: {"": 1.0} for hops in QUESTIONS})
    few = [each._replace(worlds=1) for each in SOURCES if each.method in ("arg", "srp", "parog", "r3")]
    monkeypatch.setattr("pipeline.cli.train_bundled_model.SOURCES", few)
    words = [f"metaqa={metaqa}", f"output={tmp_path / 'bundled'}", "limit=3", "shape.vocabulary=700", ONE_DRAW]
    settings = config.compose(words, name="train_bundled_model")
    prepare(settings, "walks")
    first, last = stages(settings).values()
    assert first["model"] == settings["model"]
    assert first["output"] == last["model"]
    assert first["recipe"] == settings["recipe"] | settings["parts"]["walks"]["recipe"]
    assert first["storage"] != last["storage"]
    prepare(settings, "calls")
    files = [Path(file) for stage in (first, last) for file in stage["texts"]]
    assert [file.name for file in files] == ["walks.jsonl", "calls-1.jsonl"]
    walks, calls = ([json.loads(line) for line in file.read_text("utf-8").splitlines()] for file in files)
    rows = walks + calls
    assert not any("role" in row for row in walks)
    roles = Counter(row["role"] for row in calls)
    assert {"arg.hypo", "arg.relations", "arg.entities", "srp.answer", "parog.plan", "r3.action"} <= roles.keys()
    of_others = [row for row in rows if not row.get("role", "arg").startswith("arg")]
    assert all(row["messages"][0] == {"role": "system", "content": row["role"]} for row in of_others)
    assert {row["split"] for row in rows} == {"dev", "train"}
    asked = {row["question"] for row in rows if "question" in row}
    assert "who acts in films of the director of Nine Lanterns" in asked
    assert not any("which film has Bo Vask" in json.dumps(row) for row in rows)
    model = transformers.AutoModelForCausalLM.from_pretrained(settings["model"])
    assert model.config.tie_word_embeddings
    before = [file.stat().st_mtime_ns for file in files]
    prepare(settings, "walks")
    assert [file.stat().st_mtime_ns for file in files] == before


@pytest.mark.exhaustive
def test_the_rounds_train_the_last_part_s_model_on_its_own_calls(
    metaqa: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test double stands for each training: it copies the model."""
    few = [each._replace(worlds=1) for each in SOURCES if each.method == "srp"]
    monkeypatch.setattr("pipeline.cli.train_bundled_model.SOURCES", few)
    monkeypatch.setattr("pipeline.cli.train_bundled_model.IMPROVED", ("srp",))
    monkeypatch.setattr("pipeline.cli.train_bundled_model._KNOWN_PATHS", {hops: {"": 1.0} for hops in QUESTIONS})
    trained: list[Mapping[str, Any]] = []

    def copy(settings: Mapping[str, Any]) -> None:
        trained.append(settings)
        shutil.copytree(settings["model"], settings["output"])

    monkeypatch.setattr("pipeline.cli.train_bundled_model.train_model", copy)
    monkeypatch.setattr("pipeline.cli.train_improve.train_model", copy)
    output, kept = tmp_path / "bundled", tmp_path / "kept"
    words = [f"metaqa={metaqa}", f"output={output}", f"checkpoints={kept}", "limit=1", "shape.vocabulary=700", ONE_DRAW]
    assert main(["train", "bundled-model", *words, "improvement.rounds=1"]) == 0
    names = [Path(each["output"]).relative_to(kept).as_posix() for each in trained]
    assert names == ["walks", "calls", "rounds/round-1/model"]
    assert trained[-1]["model"] == str(kept / "calls")
    assert trained[-1]["recipe"]["prefix_sharing"]
    assert (output / "model.safetensors").read_bytes() == (kept / "walks" / "model.safetensors").read_bytes()
    own = (kept / "rounds" / "round-1" / "corrections.jsonl").read_text("utf-8").splitlines()
    texts = Path(trained[-1]["texts"]).read_text("utf-8").splitlines()
    calls = Path(tmp_path / "bundled.material" / "calls-1.jsonl").read_text("utf-8").splitlines()
    held_out = (kept / "rounds" / "held-out.txt").read_text("utf-8").splitlines()
    assert texts == [text for text in own * 8 + calls if json.loads(text)["id"] not in held_out]
    assert len(own) > 3


def test_a_finished_part_needs_no_texts_and_no_untrained_llama(metaqa: Path, tmp_path: Path) -> None:
    words = [f"metaqa={metaqa}", f"output={tmp_path / 'bundled'}", f"checkpoints={tmp_path / 'kept'}", ONE_DRAW]
    settings = config.compose(words, name="train_bundled_model")
    (tmp_path / "kept" / "walks").mkdir(parents=True)
    first, last = stages(settings).values()
    (texts,) = map(Path, last["texts"])
    texts.parent.mkdir(parents=True)
    texts.touch()
    prepare(settings, "calls")
    assert last["model"] == str(tmp_path / "kept" / "walks")
    assert not Path(settings["model"]).exists()
    assert not Path(*first["texts"]).exists()


def test_describing_the_rounds_writes_nothing(metaqa: Path, tmp_path: Path) -> None:
    words = [f"metaqa={metaqa}", f"output={tmp_path / 'bundled'}", f"checkpoints={tmp_path / 'kept'}"]
    settings = config.compose(words, name="train_bundled_model")
    before = sorted(tmp_path.rglob("*"))
    rounds = improvement(settings, list(stages(settings).values())[-1])
    assert sorted(tmp_path.rglob("*")) == before
    assert rounds["output"] == str(tmp_path / "kept" / "rounds")
    assert rounds["configurations"] == str(tmp_path / "kept" / "rounds" / "runs.txt")
    assert rounds["recipe"] == settings["recipe"] | settings["improvement"]["recipe"]


def test_missing_test_questions_are_a_user_error(metaqa: Path, tmp_path: Path) -> None:
    (metaqa / "2-hop" / "vanilla" / "qa_test.txt").unlink()
    words = [f"metaqa={metaqa}", f"output={tmp_path / 'bundled'}"]
    with pytest.raises(UserError, match="MetaQA test questions, to be held out"):
        prepare(config.compose(words, name="train_bundled_model"), "walks")
