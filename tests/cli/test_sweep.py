"""`kgqa sweep`: Hydra's sweepers and files of configurations, one run folder, one line per configuration."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from rich.console import Console

from pipeline.cli.sweep import _notes_of_batches
from pipeline.engine.configuration import compose_configurations
from pipeline.traces.folder import RunFolder
from tests.cli.conftest import WORLD, FixedReply, Kgqa, serving
from tests.support import AS_RUN, rewrite_shard

ERRING = (*WORLD, "llm=oracle", "llm.error_rate=0.3", "run.dir=run")


def summary(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return loaded


def test_configurations_that_are_dropped_early_are_no_reason_to_call_the_limit_too_high(kgqa: Kgqa) -> None:
    words = ("method=srp", "llm=oracle", "llm.error_rate=0,0.9", "run.early_stopping=8", "run.limit=40", "run.dir=run")
    shown = kgqa("sweep", *words, "dataset.triples=2000", "evaluation.bootstrap_resamples=100")
    assert "dropped" in shown.err
    assert "run.limit" not in shown.out
    assert "2 configurations, of which 1 answered all questions, with strict Hits@1 " in kgqa("report", "run").out


def test_a_grid_is_one_run_with_a_line_for_each_configuration(kgqa: Kgqa, tmp_path: Path) -> None:
    shown = kgqa("sweep", "method=srp,cot", "method.depth=1,2", "method.retries=0,1", *ERRING)
    assert shown.code == 0, shown.err
    saved = summary(tmp_path / "run")
    assert len(saved["points"]) == 8
    overrides = [point["overrides"][:3] for point in saved["points"]]
    assert overrides[0] == ["method=srp", "method.depth=1", "method.retries=0"]
    assert len({tuple(each) for each in overrides}) == 8
    for point in saved["points"]:
        method, depth, retries = (word.partition("=")[2] for word in point["overrides"][:3])
        assert re.search(rf"{method}.* {depth} +{retries} +{100 * point['hits_at_1']:.1f} ", shown.out)
    logical, physical = saved["logical_llm_calls"], saved["physical_llm_calls"]
    assert shown.out.splitlines()[-1] == f"8 configurations: {logical} calls if each had run alone, {physical} made"
    assert physical < logical
    assert {path.name for path in tmp_path.iterdir()} == {"run"}, "Hydra leaves nothing of its own behind"


def test_the_second_time_there_is_nothing_to_run(kgqa: Kgqa) -> None:
    words = ("sweep", "method=srp", "method.depth=1,2", *ERRING)
    first, second = kgqa(*words), kgqa(*words)
    assert "nothing to run" in second.err
    assert second.out == first.out
    assert kgqa("evaluate", "run/run.yaml").out == first.out


def test_without_run_dir_the_folder_is_named_after_all_configurations(kgqa: Kgqa, tmp_path: Path) -> None:
    words = [word for word in ERRING if not word.startswith("run.dir")]
    kgqa("sweep", "method=srp,cot", "method.depth=1,2", *words)
    kgqa("sweep", "method=srp,cot", "method.depth=1,3", *words)
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(names) == 2
    assert all(re.fullmatch(r"synthetic-srp\+cot-oracle-[0-9a-f]{8}", name) for name in names)


def test_a_file_of_configurations(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "points.txt").write_text(
        "# what to try\n\nmethod=srp method.depth=2  # shallow\nexperiment=graph_cot 'method.name=my name'\n"
    )
    shown = kgqa("sweep", "points.txt", *ERRING)
    assert shown.code == 0, shown.err
    assert [point["method"] for point in summary(tmp_path / "run")["points"]] == ["srp", "my name"]


def test_a_wrong_line_of_a_file_is_shown(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "points.txt").write_text("llm=oracle method=cot\nllm=similarity method=rag\n")
    said = kgqa("sweep", "points.txt", "llm.error_rate=1").sentence
    assert "points.txt, in 'llm=similarity method=rag': unknown key 'llm.error_rate'" in said


def test_a_key_of_a_choice_in_the_file_may_stand_on_the_command_line(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "points.txt").write_text("llm=oracle method=cot\nllm=oracle method=rag\n")
    shown = kgqa("sweep", "points.txt", "llm.error_rate=1", "run.limit=2", "run.dir=run", "dataset.triples=2000")
    assert shown.code == 0, shown.err
    assert [each["hits_at_1"] for each in summary(tmp_path / "run")["points"]] == [0, 0]


def test_a_search_with_early_stopping_may_end_with_a_batch_of_one(kgqa: Kgqa) -> None:
    search = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.n_jobs=2", "run.early_stopping=8")
    shown = kgqa("sweep", *search, "method=srp", "method.depth=range(1,4)", *ERRING)
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[-1].startswith("3 configurations: ")


def test_notes_of_several_batches_name_their_batch() -> None:
    folders = [RunFolder(Path("runs") / name) for name in ("first", "batch-001")]
    failed = ["1 question failed:", "  1 × down", "  and 2 other errors"]
    retriever = "retriever: BAAI/bge-base-en-v1.5"
    notes = [[retriever, *failed, "40.6 % in 0"], [retriever, *failed, "no question met a limit"]]
    assert _notes_of_batches(notes, folders) == [
        retriever,
        *(f"first: {note}" for note in (*failed, "40.6 % in 0")),
        *(f"batch-001: {note}" for note in (*failed, "no question met a limit")),
    ]


def test_a_sweep_over_the_number_of_questions_is_compared_with_this_number(kgqa: Kgqa) -> None:
    assert kgqa("sweep", "method=cot", "llm=oracle", "dataset.triples=1000", "run.limit=4,6", "run.dir=run").code == 0
    shown = kgqa("compare", "run").out
    assert re.search(r"^ # +limit ", shown, re.MULTILINE)
    assert re.search(r"^ 0 +4 .*base", shown, re.MULTILINE)
    assert re.search(r"^ 1 +6 .*same", shown, re.MULTILINE)


def test_a_key_that_a_line_of_a_file_has_twice_is_named(kgqa: Kgqa) -> None:
    Path("points.txt").write_text("method=cot run.seed=1 method=rag\n")
    shown = kgqa("sweep", "points.txt", "llm=similarity", "run.limit=1", "run.dir=run", "dataset.triples=1000")
    assert "points.txt: method is given more than once: method=cot is ignored" in shown.err


def test_words_that_the_lines_of_a_file_overrule_are_named(kgqa: Kgqa) -> None:
    Path("points.txt").write_text("method=srp +method.depth=1\nllm=oracle\n")
    shown = kgqa("sweep", "points.txt", "method=arg", "method.depth=2", "run.limit=1", "run.dir=run", "llm=oracle")
    said = "the lines of points.txt that set method, method.depth, llm take precedence over the command line"
    assert said in shown.err
    assert "take precedence" not in kgqa("sweep", "points.txt", "run.limit=1", "run.dir=other").err


@pytest.mark.exhaustive
def test_optuna_gets_each_score_and_every_batch_reuses_earlier_calls(kgqa: Kgqa, tmp_path: Path) -> None:
    sweeper = ("hydra/sweeper=optuna", "hydra.sweeper.direction=maximize", "hydra.sweeper.sampler.seed=1")
    size = ("hydra.sweeper.n_trials=6", "hydra.sweeper.n_jobs=3")
    axes = ("method.depth=range(1,5)", "method.retries=choice(0,1)")
    shown = kgqa("sweep", *sweeper, *size, *axes, "method=srp", *ERRING)
    assert shown.code == 0, shown.err
    first, second = (summary(folder) for folder in (tmp_path / "run", tmp_path / "run/batch-001"))
    assert (len(first["points"]), len(second["points"])) == (3, 3)
    keys = [
        set(
            pl.scan_parquet(folder / "traces/*.parquet")
            .select("question_id", pl.col("steps").list.eval(pl.element().struct.field("key")))
            .explode("steps")
            .drop_nulls()
            .collect()
            .rows()
        )
        for folder in (tmp_path / "run", tmp_path / "run/batch-001")
    ]
    assert second["physical_llm_calls"] == len(keys[1] - keys[0])
    *_, best, batches, last = shown.out.splitlines()
    assert "6 configurations" in last
    run = tmp_path / "run"
    assert batches == f"2 batches, each a run: kgqa compare {run} {run}/batch-* compares all"
    assert re.match(r"highest Hits@1: configuration (run|batch-001):[012], method=srp ", best)
    assert re.findall(r"^ *((?:run|batch-001):\d) ", shown.out, re.MULTILINE) == [
        f"{run}:{number}" for run in ("run", "batch-001") for number in range(3)
    ]
    assert "is inside the run folder" not in shown.err
    alone = "run has only the first batch of its search. The others are in its folders batch-…: kgqa compare run run/"
    for command in ("report", "losses", "score", "compare"):
        assert alone in kgqa(command, "run").out, command
    for command in ("report", "compare"):
        assert alone not in kgqa(command, "run", "run/batch-001").out, command


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("method=srp,tg", "there is no method=tg. Did you mean 'tog'?"),
        ("method=srp,arg method.dpth=1,2", "unknown key 'method.dpth'. Did you mean 'method.depth'?"),
        ("method.depth=1,two", "method.depth='two' is wrong: input should be a valid integer"),
        ("method=srp,cot engine.shard_size=4,8", "engine.shard_size has one value for the whole run"),
        ("none.txt", "none.txt cannot be read as a file of configurations"),
        (".", ". is a folder: name a file of configurations. kgqa ls . lists the runs in it"),
        ("one.txt two.txt", "one.txt and two.txt: name one file of configurations"),
        ("hydra/sweeper=optna method.depth=1,2", "there is no hydra/sweeper=optna. Did you mean 'optuna'?"),
        ("run.max_failed=0.1,0.2", "run.max_failed has one value for the whole run"),
        ("run.reuse=[a],[b]", "run.reuse has one value for the whole run"),
        (
            "dataset.strict=true,false",
            "dataset.strict has one value for the whole run, and the configurations have true, false",
        ),
        ("evaluation.confidence=0.9,0.95", "evaluation.confidence has one value for the whole run"),
        ("method=srp,cot dataset.triples=1000,2000 method.judge=true,false", "unknown key 'method.judge'"),
        ("hydra/launcher=basic method.depth=1,2", "a sweep needs hydra/launcher=fused"),
    ],
)
def test_mistakes(words: str, sentence: str, kgqa: Kgqa) -> None:
    assert sentence in kgqa("sweep", *words.split(), *ERRING).sentence


@pytest.mark.parametrize("command", ["sweep", "estimate"])
def test_a_run_yaml_is_no_file_of_configurations(command: str, kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("points:\n- overrides: ['hydra.run=x', 'it''s']\n")
    assert kgqa(command, "run.yaml").sentence.startswith(
        "run.yaml describes a run or a sweep that has begun: kgqa evaluate run.yaml"
    )


def test_an_empty_file_of_configurations(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "points.txt").write_text("# nothing yet\n")
    assert kgqa("sweep", "points.txt").sentence.startswith("points.txt holds no configuration")


@pytest.mark.exhaustive
def test_optuna_finds_the_planted_optimum_within_the_calls_of_the_deepest_configuration(
    kgqa: Kgqa, tmp_path: Path
) -> None:
    """120 configurations, 60 trials: all share their calls, so the search costs no more than depth 6 alone."""
    (tmp_path / "conf/method").mkdir(parents=True)
    (tmp_path / "conf/method/planted.yaml").write_text(
        "_target_: tests.engine.methods.Planted\n"
        "beam_width: 1\ndepth: 1\nretries: 0\nwidth: ${.beam_width}\nhops: ${.depth}\ntries: ${.retries}\n"
    )
    sweeper = ("hydra/sweeper=optuna", "hydra.sweeper.sampler.seed=2")
    size = ("hydra.sweeper.n_trials=60", "hydra.sweeper.n_jobs=6", f"hydra.searchpath=[file://{tmp_path}/conf]")
    axes = ("method.beam_width=range(1,5)", "method.depth=range(1,6)", "method.retries=range(0,3)")  # ends included
    world = ("dataset.triples=2000", "run.limit=24", "evaluation.bootstrap_resamples=100", "llm=oracle", "run.dir=run")
    shown = kgqa("sweep", *sweeper, *size, *axes, "method=planted", *world)
    assert shown.code == 0, shown.err
    batches = [summary(file.parent) for file in sorted(tmp_path.glob("run/**/summary.json"))]
    points = [point for batch in batches for point in batch["points"]]
    assert len(points) == 60
    best = max(points, key=lambda point: point["hits_at_1"])
    assert best["hits_at_1"] == 1
    assert {"method.beam_width=4", "method.depth=5", "method.retries=2"} <= set(best["overrides"])
    assert sum(batch["physical_llm_calls"] for batch in batches) <= 24 * 6


def test_a_call_that_fails_for_several_configurations_was_made_once(kgqa: Kgqa, tmp_path: Path) -> None:
    refusing = FixedReply(refuses_every=2)
    with serving(refusing) as words:
        keys = ("run.max_failed=1", "run.max_equal_failures=null", "run.dir=run")
        kgqa("sweep", "method=cot", "method.depth=1,2,3", *WORLD, "llm=endpoint", words, *keys)
    found = summary(tmp_path / "run")
    assert sum(point["failed"] for point in found["points"]) > 0
    assert found["logical_llm_calls"] == 3 * refusing.requests
    assert found["physical_llm_calls"] == refusing.requests


class Seeded(FixedReply):
    """A model that samples as served models do: from the prompt and the seed of the call."""

    def text(self, asked: bytes) -> str:
        body = json.loads(asked)
        drawn = hashlib.sha256(json.dumps([body["messages"], body["seed"], body["temperature"]]).encode()).digest()
        return f"Path: x\n('film.film.directed_by', 0.{drawn[0] % 9 + 1}) I say {{answer {drawn[1] % 5}}}"


def rows(folder: Path, point: int) -> pl.DataFrame:
    frame = pl.read_parquet(folder / "traces/*.parquet").filter(point=point).sort("question_id")
    return frame.drop(*AS_RUN, "point")


@pytest.mark.exhaustive
def test_sampled_answers_equal_those_of_each_configuration_alone(kgqa: Kgqa, tmp_path: Path) -> None:
    points = [
        "method=cot method.temperature=0.7 method.samples=3",
        "method=cot method.temperature=0.7",
        "method=cot method.temperature=0.7 run.seed=1",
        "method=srp method.depth=2",
        "method=srp method.depth=3",
    ]
    (tmp_path / "points.txt").write_text("\n".join(points))
    with serving(Seeded()) as words:
        fused = kgqa("sweep", "points.txt", *WORLD, "llm=endpoint", words, "run.dir=fused")
        assert fused.code == 0, fused.err
        for number, point in enumerate(points):
            kgqa("evaluate", *WORLD, "llm=endpoint", words, *point.split(), f"run.dir=alone-{number}")
            assert rows(tmp_path / "fused", number).equals(rows(tmp_path / f"alone-{number}", 0)), point
    drawn = rows(tmp_path / "fused", 1)["raw_answer"]
    assert drawn.n_unique() > 3
    assert not drawn.equals(rows(tmp_path / "fused", 2)["raw_answer"])
    with serving(model := Seeded()) as words:  # the address of a server is not part of a call
        again = kgqa("sweep", "points.txt", *WORLD, "llm=endpoint", words, "run.dir=again", "run.reuse=[fused]")
        assert again.code == 0, again.err
        assert model.requests == summary(tmp_path / "again")["physical_llm_calls"] == 0


def test_values_in_brackets_are_shown_as_they_are(kgqa: Kgqa) -> None:
    shown = kgqa("sweep", "dataset.types=[1-hop],[count]", *ERRING)
    assert shown.code == 0, shown.err
    assert "[1-hop]" in shown.out
    assert "[count]" in shown.out


@pytest.mark.exhaustive
def test_a_repeated_search_asks_for_the_same_configurations(kgqa: Kgqa) -> None:
    words = ("sweep", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2", "method=srp")
    first, second = (kgqa(*words, "method.depth=range(1,4)", *ERRING) for _ in range(2))
    assert second.code == 0, second.err
    assert second.out == first.out
    assert "highest Hits@1: configuration" in second.out


def test_failed_questions_are_not_retried_in_a_batch_by_whose_scores_a_search_went_on(kgqa: Kgqa) -> None:
    words = ("sweep", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2", "method=srp")
    search = (*words, "method.depth=range(1,4)", *ERRING)
    assert kgqa(*search).code == 0
    run = Path("run")
    _fail_first_question(run / "batch-001")
    (run / "batch-001" / "summary.json").unlink()
    retry = f"kgqa evaluate {run.absolute()}/batch-001/run.yaml run.retry_failed=true"
    assert f"; run them again by {retry}:" in " ".join(kgqa(*search).out.split())
    assert kgqa(*shlex.split(retry)[1:]).code == 0, "no later batch has been chosen by its scores"
    _fail_first_question(run)
    refusal = (
        "run.retry_failed=true is refused for {}: its search has chosen later configurations by the scores as they "
    )
    refused = kgqa(*search, "run.retry_failed=true")
    assert refused.code == 2
    said = " ".join(refused.err.split())
    assert refusal.format(run.absolute()) in said
    assert "run.restart=true deletes all batches of the search" in said
    Path("run/summary.json").unlink()
    for shown in (kgqa(*search), kgqa("ls", "."), kgqa("report", run)):
        assert "run.retry_failed=true is refused for " in " ".join(shown.out.split())
        assert "runs them again" not in shown.out
        assert "asks them again" not in shown.out


def test_failed_questions_are_retried_in_a_grid_of_several_batches(kgqa: Kgqa) -> None:
    grid = ("sweep", "method=srp", "method.depth=1,2,3", "hydra.sweeper.max_batch_size=2", *ERRING)
    assert kgqa(*grid).code == 0
    _fail_first_question(Path("run"))
    assert kgqa(*grid, "run.retry_failed=true").code == 0
    assert summary(Path("run"))["points"][0]["failed"] == 0


def _fail_first_question(run: Path) -> None:
    """Write a shard in which the first row has failed."""
    shard = run / "traces" / "shard-00000.parquet"
    rows = pl.read_parquet(shard).with_row_index("row")
    is_first = pl.col("row") == 0
    failed = rows.with_columns(
        status=pl.when(is_first).then(pl.lit("failed")).otherwise("status"),
        error=pl.when(is_first).then(pl.lit("ServiceError: down")).otherwise("error"),
    )
    rewrite_shard(shard, failed.drop("row"))


@pytest.mark.parametrize(
    ("line", "words", "where"),
    [
        ("method=cot 'run.seed=1,2,3'", (), "points.txt, in 'method=cot run.seed=1,2,3'"),
        ("method=cot", ("run.seed=1,2,3",), "beside points.txt"),
    ],
    ids=["in the file", "beside it"],
)
def test_a_line_of_a_file_is_one_configuration(line: str, words: tuple[str, ...], where: str, kgqa: Kgqa) -> None:
    Path("points.txt").write_text(f"method=srp\n{line}\n")
    assert kgqa("sweep", "points.txt", *words).sentence == (
        f"{where}: run.seed=1,2,3 gives several values, but each line of the file is one configuration: write a line "
        "for each value; a list is written run.seed=[…]"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("method=cot run.limit 5", "'run.limit' is not of the form key=value"),
        ("kgqa evaluate method=cot", "'kgqa' is not of the form key=value"),
        ("- method=cot", "'-' is not of the form key=value, and kgqa has no such flag."),
    ],
)
@pytest.mark.parametrize("command", ["sweep", "estimate"])
def test_a_word_of_a_file_that_is_no_override_is_named(command: str, line: str, said: str, kgqa: Kgqa) -> None:
    Path("points.txt").write_text(f"method=srp\n{line}\n")
    assert kgqa(command, "points.txt").sentence == f"points.txt, in '{line}': {said}"


@pytest.mark.parametrize("words", [("method.beam_width=1,2",), ("method=tog,srp",)])
def test_the_best_configuration_is_named_with_its_method(words: tuple[str, ...], kgqa: Kgqa) -> None:
    """Its words can be given to a command, also if the method is the default one."""
    said = kgqa("sweep", *words, *WORLD, "run.limit=4", "llm=oracle").out
    best = said.partition("highest Hits@1: configuration ")[2].splitlines()[0].partition(", ")[2].split(" (")[0]
    assert best.startswith("method=")
    assert kgqa("evaluate", *best.split(), *WORLD, "run.limit=4", "llm=oracle").code == 0


def test_the_score_of_the_oracle_alone_is_never_the_best(kgqa: Kgqa) -> None:
    """CoT asks no graph, so the oracle answers all its questions from the gold answers."""
    words = ("method=cot,srp", "method.depth=1", "dataset.types=[1-hop,2-hop]", *WORLD, "run.limit=4", "llm=oracle")
    swept = kgqa("sweep", *words, "run.dir=runs/run")
    cot, srp = summary(Path("runs/run"))["points"]
    assert cot["hits_at_1"] > srp["hits_at_1"] > 0
    assert "highest Hits@1 of those that asked the graph or a language model: configuration 1, method=srp" in swept.out
    compared = kgqa("compare", "runs/run", "base=best")
    assert "1 has the highest score of those that asked the graph or a language model on the questions" in compared.out
    (listed,) = json.loads(kgqa("ls", "json=true").out)["runs"]
    assert (listed["best_configuration"], listed["hits_at_1"]) == (1, srp["hits_at_1"])
    reported = kgqa("report", "runs/run").out
    assert "2 configurations, of which 1 asked the graph or a language model" in reported
    assert "In configuration 1, the best, srp answered" in reported


def test_a_method_that_gets_gold_answers_is_never_the_best(kgqa: Kgqa) -> None:
    words = ("method=rog", "method.planner=random,gold", *WORLD, "run.limit=12", "llm=similarity")
    swept = kgqa("sweep", *words, "run.dir=runs/run")
    drawn, gold = summary(Path("runs/run"))["points"]
    assert gold["method"] == "rog (oracle)"
    assert gold["hits_at_1"] > drawn["hits_at_1"] > 0
    assert "highest Hits@1 of those that got no gold answers: configuration 0, method=rog method.planner=random" in (
        " ".join(swept.out.split())
    )
    compared = " ".join(kgqa("compare", "runs/run", "base=best").out.split())
    assert "0 has the highest score of those that got no gold answers on the questions" in compared
    (listed,) = json.loads(kgqa("ls", "json=true").out)["runs"]
    assert (listed["best_configuration"], listed["hits_at_1"]) == (0, drawn["hits_at_1"])
    assert "2 configurations, of which 1 got no gold answers" in " ".join(kgqa("report", "runs/run").out.split())


def test_a_sweep_over_questions_without_gold_answers_ends_with_its_table(kgqa: Kgqa) -> None:
    Path("facts.tsv").write_text("a\tnear\tb\n")
    row = {"id": "q", "question": "what is near a?", "topic_entities": ["a"], "answers": []}
    Path("questions.jsonl").write_text(json.dumps(row) + "\n")
    words = ("dataset=custom", "dataset.triples=facts.tsv", "dataset.questions=questions.jsonl", "llm=similarity")
    swept = kgqa("sweep", "method=srp,rag", *words, "run.dir=run")
    assert swept.code == 0, swept.err
    assert "no configuration is named as the best: no question has a gold answer, so none has a score" in swept.out
    assert "no question has gold answers" in kgqa("losses", "run").out


def test_no_configuration_is_the_best_if_none_has_a_right_answer(kgqa: Kgqa) -> None:
    """CoT has right answers, but they are the oracle's: no method that asks the graph has one at this depth."""
    words = ("method.depth=1", "dataset.types=[2-hop]", *WORLD, "run.limit=4", "llm=oracle")
    srp = kgqa("sweep", "method=srp", "method.beam_width=1,2", *words).out
    assert "no configuration is named as the best: none has a right first answer" in srp
    both = kgqa("sweep", "method=cot,srp", *words).out
    assert "none of those that asked the graph or a language model has a right first answer" in both


@pytest.mark.parametrize("axis", [("run.limit=2,4",), ("dataset.seed=1,2", "run.limit=3")])
def test_no_configuration_is_the_best_of_other_questions_or_another_graph(axis: tuple[str, ...], kgqa: Kgqa) -> None:
    said = kgqa("sweep", *axis, "dataset.triples=2000", "llm=oracle", "run.dir=runs/run").out
    assert "highest Hits@1" not in said
    assert "no configuration is named as the best: not all were asked the same questions of the same graph" in said
    assert "equal calls are made once only for those that were" in said
    assert "not the same questions" in kgqa("ls").out
    assert "2 configurations, not asked the same questions" in kgqa("report", "runs/run").out


def test_answers_cut_short_by_a_budget_are_reported(kgqa: Kgqa) -> None:
    shown = kgqa("sweep", "method=r3", "method.depth=4,8", "budget.max_llm_calls=5", *ERRING)
    said = " ".join(shown.out.split())
    first, second = summary(Path("run"))["points"]
    assert first["at_limit"] == second["at_limit"] > 0.01 * first["questions"]
    share = f"{100 * first['at_limit'] / first['questions']:.1f} %"
    named = f"met a limit of budget or of the method, which may decide their scores: {share} in 0, {share} in 1: "
    assert f"{named}{2 * first['at_limit']} questions: budget.max_llm_calls (kgqa show " in said


def test_one_command_swaps_the_planner_of_a_preset(kgqa: Kgqa) -> None:
    """Each configuration has its own planner; the table says how often it wrote no plan that could be read."""
    planners = "llm.roles={parog.plan: {malformed_rate: 0}},{parog.plan: {malformed_rate: 1}}"
    shown = kgqa("sweep", "experiment=parog_prompted_planner", planners, *ERRING)
    first, second = summary(Path("run"))["points"]
    assert first["without_plan"] == 0 < second["without_plan"]
    share = f"{100 * second['without_plan'] / second['questions']:.1f} %"
    assert f"so that the question itself was the plan: {share} in 1" in " ".join(shown.out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("method=cot,cot", "configuration 1 is equal to configuration 0\n"),
        (
            "method=cot,rag method.depth=1,1,2",
            "configuration 1 is equal to configuration 0, and 1 more to an earlier one\n",
        ),
    ],
)
def test_equal_configurations_are_named(words: str, said: str, kgqa: Kgqa) -> None:
    assert said in kgqa("sweep", *words.split(), *ERRING, "run.limit=1").err


def test_composing_and_checking_many_configurations_show_how_many_are_left() -> None:
    shown = io.StringIO()
    batch = [["method=cot", "dataset.triples=2000", "run.limit=1", f"run.seed={seed}"] for seed in range(3)]
    composed = compose_configurations(batch, Console(file=shown, force_terminal=True))
    assert [each.config["run"]["seed"] for each in composed] == [0, 1, 2]
    assert re.search(r"composing the configurations.*100%", shown.getvalue())


def test_a_grid_is_composed_once_with_the_progress_shown(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    composed = []
    real = ConfigLoaderImpl.load_configuration
    monkeypatch.setattr(
        ConfigLoaderImpl, "load_configuration", lambda *given, **keys: composed.append(given) or real(*given, **keys)
    )
    shown = kgqa("sweep", *WORLD, "run.limit=1", "method=cot,srp", "run.seed=1,2,3")
    assert shown.code == 0, shown.err
    assert len(composed) <= 6 + 2, "each configuration once, and a few for Hydra itself"


@pytest.mark.parametrize("width", [60, 80])
def test_each_row_of_the_table_is_one_line(kgqa: Kgqa, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    words = ("method=srp,arg", "method.depth=1,2", "method.beam_width=1,2", "llm=oracle", "run.limit=4", "run.dir=run")
    table, _, _ = kgqa("sweep", *WORLD, *words).out.partition("percent, ")
    below = table.rpartition("─")[2]
    assert [line.split()[0] for line in below.splitlines() if line.strip()] == list("01234567")


@pytest.mark.parametrize("value", ["none", "relation"])
def test_a_key_that_the_methods_of_a_sweep_have_may_be_given_once(value: str, kgqa: Kgqa) -> None:
    """The default method does not have it, with which Hydra composes the words that are no lists first."""
    words = ("dataset.triples=2000", "llm=oracle", "run.limit=2", "run.dir=run")
    ran = kgqa("sweep", "method=tog,pog", f"method.no_return={value}", *words)
    assert ran.code == 0, ran.err
    points = (RunFolder(Path("run")).read_run() or {})["points"]
    assert [point["config"]["method"]["no_return"] for point in points] == [value, value]


@pytest.mark.parametrize(
    ("word", "value"),
    [("run.note=", ""), ("run.note=null", None), ("run.note='2024'", "2024"), ('run.note="it\'s mine"', "it's mine")],
)
def test_other_single_values_of_a_sweep_over_presets_stay_as_they_are(word: str, value: object, kgqa: Kgqa) -> None:
    words = ("dataset.triples=2000", "llm=oracle", "run.limit=2", "run.dir=run", word)
    ran = kgqa("sweep", "experiment=tog,pog", *words)
    assert ran.code == 0, ran.err
    assert (RunFolder(Path("run")).read_run() or {})["note"] == value


def test_a_key_of_one_method_in_a_sweep_over_several_is_explained(kgqa: Kgqa) -> None:
    way = " To give each choice its own values, write one configuration a line: kgqa sweep FILE"
    said = kgqa("sweep", *WORLD, "method=srp,parog", "method.max_subgoals=3,6").sentence
    assert said.endswith(f"It is a key of method=parog.{way}")
    said = kgqa("sweep", *WORLD, "method=srp,rag", "method.depth=2,3").sentence
    assert (
        said == f"method.depth=3 sets method.hops of rag, and method.hops=3 is wrong: input should be 0, 1 or 2.{way}"
    )


def test_the_same_configurations_in_another_order_are_said_to_be_the_same(kgqa: Kgqa) -> None:
    common = ("sweep", "dataset.triples=2000", "run.limit=4", "run.dir=run", "llm=oracle")
    assert kgqa(*common, "method=srp,cot", "method.temperature=0,0.5").code == 0
    again = kgqa(*common, "method=cot,srp", "method.temperature=0.5,0")
    assert (again.code, again.err.count("\n")) == (2, 1)
    said = "run holds these configurations in another order: give the values in that order, which is method=srp "
    assert f"{said}method.temperature=0; method=srp method.temperature=0.5; method=cot " in again.err
