"""Opening a run as dataframes, and reading its questions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from upath import UPath

import pipeline
from pipeline.analysis.runs import Run, open_run
from pipeline.cli.main import main
from pipeline.errors import UserError
from pipeline.traces.reader import RecordedCalls

WORDS = (
    "llm=oracle",
    "dataset.triples=2000",
    "run.limit=6",
    "engine.shard_size=4",
    "evaluation.bootstrap_resamples=100",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two configurations."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main(["sweep", *WORDS, "method.depth=1,2", f"run.dir={folder}"]) == 0
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return open_run(folder)


@pytest.fixture
def bucket(folder: Path) -> Iterator[UPath]:
    """The run's folder in an object store."""
    bucket = UPath("memory://kgqa-runs/run")
    for file in folder.rglob("*.*"):
        (bucket / str(file.relative_to(folder))).write_bytes(file.read_bytes())
    yield bucket
    bucket.fs.rm("/kgqa-runs", recursive=True)


def test_questions_have_one_row_per_configuration_and_question(run: Run, folder: Path) -> None:
    rows = run.questions.collect()
    assert rows.height == rows.select("configuration", "question_id").n_unique() == 2 * 6
    assert not {"point", "steps", "texts", "evidence"} & set(rows.columns)
    assert {"question", "answers", "gold", "hits_at_1", "llm_calls", "meta"} <= set(rows.columns)
    assert rows.equals(pl.read_parquet(folder / "traces/*.parquet").rename({"point": "configuration"})[rows.columns])


def test_questions_are_read_lazily(run: Run) -> None:
    assert isinstance(run.questions, pl.LazyFrame)
    plan = run.questions.select("f1").explain()
    assert "PROJECT 1/" in plan, "only one column is read from the files"


def test_steps_have_one_row_per_step_with_their_texts(run: Run) -> None:
    steps, questions = run.steps.collect(), run.questions.collect()
    keys = ["configuration", "question_id", "step"]
    assert steps.columns[:3] == keys
    assert steps.select(keys).n_unique() == steps.height
    assert set(steps["kind"]) == {"llm", "kg", "decision"}
    assert steps.filter(kind="llm").select("inputs", "completion").null_count().row(0) == (0, 0)
    assert steps.filter(kind="decision")["payload"].null_count() == 0
    assert (steps["kind"] == "kg").sum() >= questions["kg_lookups"].sum() > 0


def test_calls_are_the_model_calls_among_the_steps(run: Run) -> None:
    calls, questions = run.calls.collect(), run.questions.collect()
    assert calls.height == questions["llm_calls"].sum()
    assert calls["prompt_tokens"].sum() == questions["prompt_tokens"].sum()
    assert not {"query", "payload"} & set(calls.columns)


def test_configurations_have_overrides_and_the_figures_of_the_summary(run: Run, folder: Path) -> None:
    rows = run.configurations.collect()
    saved = json.loads((folder / "summary.json").read_text())["points"]
    assert rows["configuration"].to_list() == [0, 1]
    assert ["method.depth=1" in overrides for overrides in rows["overrides"]] == [True, False]
    for name in ("hits_at_1", "f1", "llm_calls", "tokens", "label", "questions"):
        assert rows[name].to_list() == [entry[name] for entry in saved]
    assert rows.select("f1_low", "f1_high").rows() == [tuple(entry["intervals"]["f1"]) for entry in saved]
    assert rows["rouge_l"].null_count() == 2


@pytest.mark.parametrize("counter", ["prompt_tokens", "completion_tokens", "kg_rows", "rows", "queries"])
def test_sums_over_a_large_sweep_do_not_wrap(run: Run, counter: str) -> None:
    """Polars sums 32-bit integers in 32 bits: two billion tokens became a negative number."""
    frame = run.questions if counter == "kg_rows" else run.steps
    most = frame.select(pl.repeat(2**31 - 1, pl.len()).cast(frame.collect_schema()[counter]).sum(), count=pl.len())
    total, count = most.collect().row(0)
    assert total == (2**31 - 1) * count


def test_the_configurations_of_two_runs_can_be_put_together(run: Run, tmp_path: Path) -> None:
    assert main(["evaluate", *WORDS, "method=cot", f"run.dir={tmp_path}/run"]) == 0
    both = pl.concat([run.configurations, open_run(tmp_path / "run").configurations]).collect()
    assert both.height == 3


def test_the_dataframes_can_be_joined(run: Run) -> None:
    questions = run.questions.select("configuration", "question_id", "question")
    configurations = run.configurations.select("configuration", "overrides")
    joined = run.calls.join(questions, on=["configuration", "question_id"]).join(configurations, on="configuration")
    assert joined.collect().height == run.calls.collect().height


def test_a_question_has_its_answers_scores_and_steps_with_the_exact_prompts(run: Run, folder: Path) -> None:
    row = run.questions.filter(configuration=1).collect().row(0, named=True)
    question = run.question(row["question_id"], configuration=1)
    assert (question.text, question.answers, question.gold) == (row["question"], row["answers"], row["gold"])
    assert question.scores["f1"] == row["f1"]
    assert "rouge_l" not in question.scores
    assert question.row["llm_calls"] == row["llm_calls"]
    assert [step.number for step in question.steps] == list(range(len(question.steps)))
    recorded = RecordedCalls(folder)
    prompts = {recorded.messages(call) for call in recorded.calls(question.id).values()}
    calls = [step for step in question.steps if step.kind == "llm"]
    assert calls
    assert {tuple(step.prompt) for step in calls} <= prompts
    assert all(step.payload is not None for step in question.steps if step.kind == "decision")


def test_a_question_prints_as_plain_text(run: Run) -> None:
    id = run.questions.collect()["question_id"][0]
    question = run.question(id)
    text = str(question)
    assert text.startswith(f"question {id} of synthetic, answered by srp (configuration 0)\n{question.text}\n")
    assert f"gold:    {', '.join(question.gold)}" in text
    call = next(step for step in question.steps if step.kind == "llm")
    assert f"[{call.number}] llm {call.role}" in text
    assert call.prompt[-1].content.splitlines()[0] in text
    assert str(call.completion).splitlines()[0] in text


def test_a_wrong_question_id_names_the_nearest_one(run: Run) -> None:
    id = run.questions.collect()["question_id"][0]
    with pytest.raises(UserError, match=rf"has no finished question '{id}x'\. Did you mean '{id}'\?"):
        run.question(f"{id}x")


def test_a_question_of_another_configuration_is_named_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert main(["sweep", *WORDS, "run.limit=1,2", f"run.dir={folder}"]) == 0
    opened = open_run(folder)
    (second,) = {*opened.questions.collect()["question_id"]} - {opened.questions.collect()["question_id"][0]}
    with pytest.raises(UserError, match=r"0 of .* has no finished question '.*'\. Configurations that have it: 1$"):
        opened.question(second, 0)


def test_an_id_with_another_number_is_not_suggested(run: Run) -> None:
    id = run.questions.collect()["question_id"][0]
    with pytest.raises(UserError, match=rf"has no finished question '{id}9'\. The first finished question is"):
        run.question(f"{id}9")


def test_a_wrong_configuration_names_the_highest_one(run: Run) -> None:
    id = run.questions.collect()["question_id"][0]
    for number in (2, -1):
        with pytest.raises(UserError, match=rf"has no configuration {number}: its highest number is 1"):
            run.question(id, configuration=number)


def test_a_folder_without_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a run folder: it has no run\.yaml"):
        open_run(tmp_path)


def test_a_run_in_progress_shows_its_finished_shards(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    (tmp_path / "run" / "traces" / "shard-00001.parquet").unlink()
    run = open_run(str(tmp_path / "run"))
    assert run.questions.collect().height == 2 * 4
    assert run.configurations.collect()["questions"].to_list() == [4, 4]
    assert str(run).endswith("configurations: 2, finished shards: 1")


def test_figures_of_an_extended_run_are_not_mixed_with_the_earlier_ones(tmp_path: Path) -> None:
    """The last shard of a run is written again with more questions."""
    few = pipeline.evaluate({"llm": "oracle", "run.limit": 3, "run.dir": tmp_path / "run"})
    assert few.questions.collect().height == 3
    more = pipeline.evaluate({"llm": "oracle", "run.limit": 5, "run.dir": tmp_path / "run", "run.extend": True})
    assert (more.questions.collect().height, more.configurations.collect()["questions"][0]) == (5, 5)
    for read in (lambda: few.questions, lambda: few.configurations, few.losses, lambda: few.steps):
        with pytest.raises(UserError, match="has changed since it was opened: open it again with open_run"):
            read()
    assert open_run(few).questions.collect().height == 5


def test_a_file_of_a_run_is_not_its_folder(folder: Path) -> None:
    with pytest.raises(UserError, match=rf"run\.yaml is a file of a run: name its folder, {folder}$"):
        open_run(folder / "run.yaml")


def test_a_run_in_an_object_store_is_read_alike(bucket: UPath, run: Run) -> None:
    remote = open_run(str(bucket))
    assert remote.questions.collect().equals(run.questions.collect())
    assert remote.configurations.collect().equals(run.configurations.collect())
    id = run.questions.collect()["question_id"][0]
    assert str(remote.question(id)) == str(run.question(id))


def test_an_argument_of_another_kind_is_a_user_error(run: Run) -> None:
    for no_path in (None, 5, ["runs/x"]):
        with pytest.raises(UserError, match=r" is no path: name a folder, such as 'runs/x'$"):
            open_run(no_path)  # type: ignore[arg-type]
        with pytest.raises(UserError, match=r" is no path: name a folder, such as 'runs/x'$"):
            run.flips(no_path)  # type: ignore[arg-type]
    for lookup in (run.question, run.critical_path):
        with pytest.raises(
            UserError, match=r"^3 should be the id of a question: a text, as in the column question_id$"
        ):
            lookup(3)  # type: ignore[operator]
    with pytest.raises(UserError, match=r" has no configuration '1': its highest number is 1$"):
        run.question("sample-test-000000", configuration="1")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r" has no configuration 2: its highest number is 1$"):
        run.flips(run, 0, 2)
    for wrong in (0, -1, "5", 2.5, True):
        with pytest.raises(UserError, match=rf"^count={wrong!r} should be a whole number from 1 on$"):
            run.slow_lookups(wrong)  # type: ignore[arg-type]
        with pytest.raises(UserError, match=rf"^bins={wrong!r} should be a whole number from 1 on$"):
            run.calibration(wrong)  # type: ignore[arg-type]


def test_flips_of_runs_without_a_common_question_are_refused(run: Run, tmp_path: Path) -> None:
    words = ["method=cot", "llm=similarity", "dataset.split=train", "run.limit=2", f"run.dir={tmp_path}/other"]
    assert main(["evaluate", *words]) == 0
    with pytest.raises(UserError, match="cannot be compared: "):
        run.flips(tmp_path / "other")


def test_flips_takes_a_run_folder(run: Run, folder: Path) -> None:
    assert run.flips(folder, 0, 1).collect().equals(run.flips(run, 0, 1).collect())
