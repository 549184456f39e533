"""What `kgqa compare` refuses to compare, or leaves out and names."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from pipeline import open_run
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from tests.cli.compare.support import WORLD, evaluate, figures, run_family, write_family
from tests.cli.conftest import Kgqa


def test_configurations_on_another_dataset_are_left_out_and_named(kgqa: Kgqa) -> None:
    words = ("dataset.triples=2000,3000", "method=srp,arg", "llm=oracle", "run.limit=10", "run.dir=run")
    assert kgqa("sweep", *words).code == 0
    found = figures(kgqa, "run", "base=3")
    assert [point["name"] for point in found["points"]] == ["2"]
    assert [each["name"] for each in found["left_out"]] == ["0", "1"]
    (reason,) = {each["reason"] for each in found["left_out"]}
    assert re.fullmatch(r"graph is .* and .* \(name runs over the same questions and the same graph\)", reason)
    assert found["notes"] == [f"2 configurations left out, not comparable with 3: {reason}"]


def test_the_same_questions_under_another_name_are_compared(runs: Path, kgqa: Kgqa) -> None:
    evaluate(kgqa, "other", "llm=oracle", "run.limit=10", "dataset.name=mine")
    assert "on 10 common questions" in " ".join(kgqa("compare", runs / "good", "other").out.split())
    assert open_run(runs / "good").flips("other").collect().height < 10


def test_datasets_without_a_common_question_are_named(kgqa: Kgqa) -> None:
    write_family(6)
    run_family(kgqa, "one", "llm=oracle")
    Path("questions.jsonl").write_text(Path("questions.jsonl").read_text().replace('"id": "q', '"id": "r'))
    run_family(kgqa, "two", "llm=oracle", "dataset.name=mine")
    said = kgqa("compare", "one", "two").sentence
    assert said.startswith("one:0 and two:0 cannot be compared: dataset is custom and mine; they have no question in")


def test_the_same_ids_over_other_texts_are_refused(kgqa: Kgqa) -> None:
    write_family(6)
    run_family(kgqa, "one", "llm=oracle")
    write_family(6, text="Name a child of")
    run_family(kgqa, "two", "llm=oracle")
    said = kgqa("compare", "one", "two").sentence
    remedy = "(name runs over the same questions and the same graph)"
    reason = f"cannot be compared: question q0 has a different text in each {remedy}"
    assert said == f"one:0 and two:0 {reason}"
    with pytest.raises(UserError, match=f"^.*one and .*two {re.escape(reason)}$"):
        open_run("one").flips("two")


def test_the_same_questions_with_other_gold_answers_are_refused(kgqa: Kgqa) -> None:
    write_family(6)
    run_family(kgqa, "old", "llm=oracle")
    corrected = Path("questions.jsonl").read_text().replace('"C2"', '"C3"')
    Path("questions.jsonl").write_text(corrected)
    run_family(kgqa, "new", "llm=oracle")
    said = kgqa("compare", "old", "new").sentence
    assert said.startswith("old:0 and new:0 cannot be compared: question q2 has other gold answers in each")
    assert "run the commands of both again: " in said, "which one is older does not say whose answers are"
    report = kgqa("report", "old", "new").sentence
    assert report == said.replace("old:0 and new:0 cannot be compared", "old and new cannot be shown on one page")
    run_family(kgqa, "old", "llm=oracle")
    assert kgqa("compare", "old", "new").code == 0, "the old run was scored by the new gold answers"
    assert kgqa("report", "old", "new").code == 0


@pytest.mark.parametrize(
    ("words", "differs"),
    [
        ("dataset.triples=3000", "graph is "),
        ("evaluation.strip_accents=false", "evaluation.strip_accents is True and False (run one again"),
    ],
)
def test_runs_of_different_circumstances_are_refused(words: str, differs: str, runs: Path, kgqa: Kgqa) -> None:
    evaluate(kgqa, "other", "llm=oracle", "run.limit=10", words)
    said = kgqa("compare", runs / "good", "other").sentence
    assert said.startswith(f"good:0 and other:0 cannot be compared: {differs}")
    assert said.endswith("needs no new calls)" if "evaluation" in words else "the same questions and the same graph)")
    with pytest.raises(UserError, match=f"cannot be compared: {re.escape(differs)}"):
        open_run(runs / "good").flips("other")


def test_an_unfinished_run_is_reported(runs: Path, kgqa: Kgqa) -> None:
    shutil.copytree(runs / "bad", "bad")
    assert "not complete" not in kgqa("compare", runs / "good", "bad").out
    Path("bad", "summary.json").unlink()
    note = "bad is not complete: only the "
    assert note in kgqa("compare", runs / "good", "bad").out
    question = json.loads(kgqa("losses", "bad", "json=true").out)["groups"][0]["example"]
    for words in (("losses", "bad"), ("show", "bad", question), ("export", "bad", "format=otel"), ("report", "bad")):
        assert note in kgqa(*words).out, words
    assert note in Path("bad", "report.html").read_text()


def test_an_unfinished_sweep_says_what_is_counted(sweep: Path, kgqa: Kgqa) -> None:
    shutil.copytree(sweep, "part")
    Path("part", "summary.json").unlink()
    note = "only the 20 questions in its finished shards are counted, in each of 24 configurations."
    assert note in kgqa("compare", "part").out


def test_configurations_that_have_not_begun_are_left_out_with_a_note(kgqa: Kgqa) -> None:
    kgqa("sweep", "method=srp,cot", "dataset.split=test,train", "llm=oracle", "run.limit=4", "run.dir=part")
    Path("part", "summary.json").unlink()
    Path("part", "traces", "shard-00001.parquet").unlink()  # that of the questions for training
    found = kgqa("compare", "part", "base=best")
    assert "2 configurations of part have no finished question yet: they are left out" in " ".join(found.out.split())
    compared = figures(kgqa, "part")
    assert [compared["base"]["point"], *(each["point"] for each in compared["points"])] == [0, 2]
    kgqa("sweep", "method=cot", "dataset.split=test,train", "llm=oracle", "run.limit=4", "run.dir=one")
    Path("one", "traces", "shard-00001.parquet").unlink()
    only = kgqa("compare", "one").sentence
    assert only == "one has finished questions of one of 2 configurations: name another run to compare it with"
    unknown = "these runs have no configuration of this name with a finished question"
    assert f"base=1: {unknown}" in kgqa("compare", "part", "base=1").sentence
    with pytest.raises(UserError, match=f"other_configuration=1: {unknown}"):
        open_run("part").flips("part", 0, 1)


def test_runs_without_a_common_question_are_refused(runs: Path, kgqa: Kgqa) -> None:
    for run, shards in (("good", "01"), ("bad", "23")):
        shutil.copytree(runs / run, run)
        for shard in Path(run, "traces").glob("*.parquet"):
            if shard.stem[-1] not in shards:
                shard.unlink()
    said = kgqa("compare", "good", "bad").sentence
    assert (
        said == "good:0 and bad:0 cannot be compared: they have no question in common "
        "(name runs over the same questions and the same graph)"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("GOOD", "has a single configuration: name another run to compare it with"),
        ("GOOD nowhere", "nowhere is not a run folder: it does not exist (see kgqa ls)"),
        ("flips=1", "name what to read: kgqa compare RUN [RUN …] [key=value] …"),
        (
            "GOOD BAD base=bad:1",
            "base=bad:1: these runs have no configuration of this name with a finished question. They have good:0, b",
        ),
        ("GOOD BAD score=hits_at_2", "there is no score=hits_at_2. Known: hits_at_1, "),
        ("GOOD BAD score=hits_at1", "there is no score=hits_at1. Did you mean 'hits_at_1'? Known: hits_at_1, "),
        ("GOOD BAD configuration=1-3", "configuration=1-3 is no list: name each one, as in configuration=[1,2,3]"),
        ("GOOD BAD configuration=0:99", "configuration=0:99 is no list: name each one, as in configuration=[0,1,…,99]"),
        ("GOOD BAD score=rouge_l", "good:0 and bad:0 have no question in common with the score rouge_l"),
        ("GOOD BAD correction=none", "correction='none' is wrong: input should be 'holm' or 'bh'"),
        ("GOOD BAD cluster=kind", "cluster=kind: no question has this field in `meta`, which has "),
        ("GOOD BAD top=0", "top=0 is wrong: input should be greater than 0"),
        (
            "GOOD BAD flips=good:1",
            "flips=good:1: these runs have no configuration of this name with a finished question. They have good:0, b",
        ),
        ("GOOD BAD flips=good", "flips=good is the base itself: name the configuration to compare with it"),
        ("GOOD BAD noise.questions=x", "noise.questions='x' is wrong: input should be a valid integer"),
        ("GOOD BAD noise=3", "noise=3 is wrong: "),
        ("GOOD BAD corection=bh", "unknown key 'corection'. Did you mean 'correction'?"),
        ("GOOD BAD +more=1", "unknown key 'more'."),
        ("GOOD BAD +xyz=1", "unknown key 'xyz'. Known: base, configuration, score, "),
        ("GOOD BAD method=srp", "this command has no group 'method'. --help lists its keys."),
        ("GOOD BAD json=maybe", "json=maybe is wrong: input should be true or false"),
    ],
)
def test_mistakes(words: str, sentence: str, runs: Path, kgqa: Kgqa) -> None:
    named = {"GOOD": runs / "good", "BAD": runs / "bad"}
    assert sentence in kgqa("compare", *(named.get(word, word) for word in words.split())).sentence


def test_a_run_that_was_scored_again_is_named(runs: Path, kgqa: Kgqa) -> None:
    for name in ("good", "bad"):
        shutil.copytree(runs / name, name)
    said = "new scores, which are in its summary; a comparison uses those of the run"
    assert said not in kgqa("compare", "good", "bad").out
    file = Path("bad/summary.json")
    summary = json.loads(file.read_text())
    del summary["digest"]
    summary["points"][0]["hits_at_1"] += 0.1
    RunFolder(Path("bad")).write_summary(summary)
    shown = kgqa("compare", "good", "bad")
    assert f"bad {said}" in shown.out
    assert f"good {said}" not in shown.out


def test_a_configuration_over_other_questions_is_said_to_be_incomparable(kgqa: Kgqa) -> None:
    words = ("llm=oracle", "run.limit=4", "method=cot", "budget.max_llm_calls=4,5", "dataset.seed=7,8", "run.dir=run")
    assert kgqa("sweep", *WORLD, *words).code == 0
    refused = kgqa("compare", "run", "flips=1").sentence
    assert refused.startswith("flips=1 cannot be compared with the base 0: graph is ")
    assert refused.endswith("base= takes another one")
    shown = " ".join(kgqa("compare", "run", "base=best").out.split())
    assert "the highest score on the questions that all compared configurations answered" in shown
