"""`kgqa collect parog`: training pairs from the gold SPARQL of real questions, their report, and resuming."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline import config
from pipeline.cli.main import main
from pipeline.methods.parog.plan import read_plan
from pipeline.normalisation import normalise
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from tests.cli.support import Kgqa

pytestmark = pytest.mark.exhaustive

ROWS = 30
"""The number of questions of each dataset."""
PART = "collect.execute_where={gold_pattern_in_slice: true}"


@pytest.fixture(scope="session")
def slice_words(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The first questions of CWQ and of GrailQA over the slice of Freebase."""
    folder = shared_data / "freebase-slice"
    lines: list[bytes] = []
    for name in ("cwq.test", "grailqa.test1000"):
        with gzip.open(folder / f"{name}.jsonl.gz") as file:
            lines += [line for _, line in zip(range(ROWS), file, strict=False)]
    questions = tmp_path_factory.mktemp("slice") / "questions.jsonl"
    questions.write_bytes(b"".join(lines))
    return ["dataset=custom", f"dataset.triples={folder / 'triples.tsv.gz'}", f"dataset.questions={questions}"]


@pytest.fixture(scope="session")
def collected(slice_words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("collected") / "pairs"
    assert (
        main(["collect", "parog", *slice_words, "llm=oracle", "material.allow_test_split=true", PART, *into(output)])
        == 0
    )
    return output


def into(folder: Path) -> tuple[str, str]:
    """The arguments that put the run and its output into one folder."""
    return f"run.dir={folder}", f"output={folder / 'samples.jsonl'}"


def samples(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text("utf-8").splitlines()]


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "samples.report.json").read_text("utf-8"))
    return found


def questions(words: list[str]) -> dict[str, dict[str, Any]]:
    """The rows of the question file of a command, by their ids."""
    lines = Path(words[-1].partition("=")[2]).read_text("utf-8").splitlines()
    return {row["id"]: row for row in map(json.loads, lines)}


def check(folder: Path, rows: dict[str, dict[str, Any]]) -> int:
    """Check by question file and traces that every executed plan gave gold answers.

    Returns the number of executed plans.
    """
    shards = read_shards(RunFolder(folder), ("question_id", "answers"))
    answers = {id: given for shard in shards for id, given in shard.iter_rows()}
    in_slice = [sample["id"] for sample in samples(folder) if rows[sample["id"]]["gold_pattern_in_slice"]]
    assert in_slice == [sample["id"] for sample in samples(folder) if sample["executed"]]
    for id in in_slice:
        gold = {normalise(name) for name in (*rows[id]["answers"], *rows[id]["answers_alt"], *rows[id]["answer_mids"])}
        assert answers[id], id
        assert {normalise(text) for text in answers[id]} <= gold, id
    return len(in_slice)


def test_every_kept_and_executed_plan_gave_gold_answers(collected: Path, slice_words: list[str]) -> None:
    assert check(collected, questions(slice_words)) >= ROWS


def test_a_pair_is_a_chat_that_ends_with_its_plan(collected: Path) -> None:
    for sample in samples(collected):
        user, assistant = sample["messages"]
        assert (user["role"], assistant["role"]) == ("user", "assistant")
        plan = read_plan(assistant["content"])
        assert 1 <= len(plan) <= 6
        assert user["content"].endswith(("?", ".", "!"))
        lookups = [subgoal.goal for subgoal in plan if subgoal.op == "lookup"]
        names = [goal.rpartition(" leads to from ")[2] for goal in lookups]
        bare = "".join(filter(str.isalnum, normalise(user["content"])))
        assert all("".join(filter(str.isalnum, normalise(name))) in bare for name in names), sample["id"]


def test_the_report_counts_every_question_and_has_the_published_shares(collected: Path) -> None:
    found = report(collected)
    assert found["questions"] == 2 * ROWS == sum(found["kept"].values()) + sum(found["rejected"].values())
    assert sum(found["kept"].values()) == len(samples(collected))
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert found["published_shares"]["conjunction"] == 0.3578
    assert (found["split"], found["label"]) == ("test", "oracle")
    assert {"linear", "composition", "conjunction"} <= found["kept"].keys()


def test_the_same_command_writes_the_same_pairs_without_a_new_run(
    collected: Path, slice_words: list[str], kgqa: Kgqa
) -> None:
    before = samples(collected)
    (collected / "samples.jsonl").unlink()
    said = kgqa(
        "collect", "parog", *slice_words, "llm=oracle", "material.allow_test_split=true", PART, *into(collected)
    )
    assert said.code == 0
    assert "nothing to run" in said.err
    assert samples(collected) == before
    assert "35.78 %" in said.out
    assert "worded by llm=oracle, which is not a language model" in said.out
    assert "from the test split (material.allow_test_split)" in said.out


def test_an_erring_model_loses_pairs_and_makes_no_wrong_ones(slice_words: list[str], kgqa: Kgqa) -> None:
    words = (*slice_words, "llm=oracle", "llm.error_rate=0.5", "run.limit=20", "material.allow_test_split=true", PART)
    assert kgqa("collect", "parog", *words, *into(Path("pairs"))).code == 0
    found = report(Path("pairs"))
    assert found["rejected"].keys() & {
        "the back-translation leaves out a constant",
        "the back-translation asks another question",
    }
    assert check(Path("pairs"), questions(slice_words))


def test_the_synthetic_world_gives_executed_plans_of_every_type(kgqa: Kgqa) -> None:
    world = ("dataset.triples=2000", "dataset.split=train", "run.limit=40")
    assert kgqa("collect", "parog", *world, "llm=oracle", *into(Path("pairs"))).code == 0
    found = report(Path("pairs"))
    assert set(found["kept"]) == set(found["published_shares"])
    assert found["executed"] == found["complete"] == sum(found["kept"].values()) >= 36


def test_a_test_split_is_refused_unless_it_is_allowed(slice_words: list[str], kgqa: Kgqa) -> None:
    said = kgqa("collect", "parog", *slice_words, "llm=oracle", *into(Path("pairs"))).sentence
    assert said.startswith("dataset.split=test is for evaluation")
    assert "material.allow_test_split=true" in said
    assert not Path("pairs").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("collect porag", "kgqa collect has no 'porag'. Did you mean 'parog'?"),
        ("collect parog", "output must be given"),
        ("collect parog output=x.jsonl dataset.split=train collect.max_subgoals=0", "collect.max_subgoals=0 is wrong"),
        ("collect parog colect.max_subgoals=1", "unknown key 'colect.max_subgoals'"),
        ("collect parog output=x.jsonl material.allow_test_split=maybe", "material.allow_test_split='maybe' is wrong"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence(words: str, sentence: str, kgqa: Kgqa) -> None:
    assert sentence in kgqa(*words.split()).sentence


def test_held_out_questions_make_no_pairs(kgqa: Kgqa) -> None:
    world = ("dataset.triples=2000", "dataset.split=train", "run.limit=12", "llm=oracle")
    assert kgqa("collect", "parog", *world, *into(Path("all"))).code == 0
    out, *others = samples(Path("all"))
    Path("test.txt").write_text(f"{out['id']}\n", "utf-8")
    assert kgqa("collect", "parog", *world, "material.held_out=[test.txt]", *into(Path("some"))).code == 0
    assert samples(Path("some")) == others
    assert report(Path("some"))["rejected"]["held out"] == 1


def test_questions_without_gold_queries_make_no_pairs(kgqa: Kgqa) -> None:
    question = {"id": "q", "question": "who is Ann's son", "topic_entities": ["Ann"], "answers": ["Bob"]}
    Path("questions.jsonl").write_text(json.dumps(question), "utf-8")
    Path("graph.tsv").write_text("Ann\tson\tBob\n", "utf-8")
    words = ("dataset=custom", "dataset.triples=graph.tsv", "dataset.questions=questions.jsonl", "dataset.split=train")
    said = kgqa("collect", "parog", *words, *into(Path("pairs"))).sentence
    assert said == "none of 1 question makes a training pair (1: no gold query)"


def test_help_lists_the_command_and_its_keys(kgqa: Kgqa) -> None:
    assert "parog" in kgqa("collect", "--help").out
    assert "collect.max_subgoals=6" in kgqa("collect", "parog", "--help").out


@pytest.mark.parametrize(
    "model", ["llm=oracle", "llm=similarity", "llm=endpoint llm.base_urls=[http://x/v1] llm.model=m"]
)
def test_simulated_models_and_they_alone_are_given_the_simulators_of_the_collection(model: str) -> None:
    composed = config.compose([*model.split(), "output=pairs.jsonl"], name="collect_parog")
    config.check(composed, ["llm"])
    expected = None if "endpoint" in model else ["pipeline.training.parog.simulators"]
    assert composed["llm"].get("simulators") == expected
