"""`kgqa estimate` against the run that it estimates."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipeline.cli.arguments import Arguments
from pipeline.cli.estimate import Line, Plan, Sampling, _end_s, _measured_rate, estimate
from pipeline.cli.sweep import run_configurations
from pipeline.errors import FAILED_RUN
from tests.cli.support import Kgqa
from tests.support import each_method

WORLD = (
    *("dataset.triples=2000", "run.limit=160", "llm=oracle", "llm.error_rate=0.15", "run.dir=run"),
    "evaluation.bootstrap_resamples=1000",
)
PLAN = Plan(
    questions=24,
    gpus=2,
    tokens_per_s_per_gpu=1000,
    usd_per_gpu_hour=2,
    usd_per_million_prompt_tokens=3,
    usd_per_million_completion_tokens=15,
)


def lines_of(words: Sequence[str], plan: Plan = PLAN) -> dict[str, Line]:
    sampling = Sampling(plan.questions, Console(quiet=True))
    run_configurations(Arguments(overrides=words), sampling)
    lines, _ = estimate(sampling, plan)
    return {line.what: line for line in lines}


def spent(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", each_method("srp"))
def test_the_intervals_contain_what_the_run_costs(method: str, kgqa: Kgqa, here: Path) -> None:
    found = lines_of((f"method={method}", *WORLD))
    assert kgqa("evaluate", f"method={method}", *WORLD).code == 0
    (point,) = spent(here / "run")["points"]
    tokens = point["prompt_tokens"] + point["completion_tokens"]
    actual = {
        "calls, each configuration alone": point["llm_calls"],
        "calls that are made": point["llm_calls"],
        "prompt tokens": point["prompt_tokens"],
        "completion tokens": point["completion_tokens"],
        "graph queries": point["kg_queries"],
        "GPU hours": tokens / 1000 / 3600,
        "US dollars": 2 * tokens / 1000 / 3600,
        "US dollars for tokens": (3 * point["prompt_tokens"] + 15 * point["completion_tokens"]) / 1e6,
        "hours": tokens / 2000 / 3600,
    }
    for what, value in actual.items():
        projection = found[what].projection
        assert projection is not None
        # One interval in twenty may miss, but not by much.
        assert 0.97 * projection.low <= value <= 1.03 * projection.high, what
        # Where all sampled questions made the same number of calls, others may make more.
        assert projection.low < projection.value < projection.high or projection.low == projection.value == value


@pytest.mark.exhaustive
def test_a_sweep_counts_shared_calls_once(kgqa: Kgqa, here: Path) -> None:
    words = ("method=srp", "method.depth=1,2,3", "method.retries=0,1", *WORLD)
    found = lines_of(words)
    assert kgqa("sweep", *words).code == 0
    summary = spent(here / "run")
    alone, made = (found[what].projection for what in ("calls, each configuration alone", "calls that are made"))
    assert alone is not None
    assert made is not None
    assert alone.low <= summary["logical_llm_calls"] <= alone.high
    assert made.low <= summary["physical_llm_calls"] <= made.high
    assert made.high < alone.low


def test_configurations_of_two_datasets_are_added_up(here: Path) -> None:
    one = lines_of(("method=cot", *WORLD))["calls that are made"].projection
    two = lines_of(("method=cot", "dataset.seed=7,8", *WORLD, "run.dir=other"))["calls that are made"].projection
    assert one is not None
    assert two is not None
    assert two.value == pytest.approx(2 * one.value)


def test_the_calls_of_the_sample_are_not_made_again(kgqa: Kgqa, here: Path) -> None:
    shown = kgqa("estimate", "estimate.questions=24", *WORLD)
    assert shown.code == 0, shown.err
    (reuse,) = shlex.split(shown.out.splitlines()[-1].partition("add ")[2])
    assert reuse == f"run.reuse=[{here}/run-sample]"
    assert "projected from 24 of 160 questions" in shown.out
    assert "give estimate.tokens_per_s_per_gpu" in shown.out
    assert "four characters each" in shown.out
    sampled = spent(here / "run-sample")["physical_llm_calls"]
    kgqa("evaluate", *WORLD, reuse)
    summary = spent(here / "run")
    assert summary["logical_llm_calls"] - summary["physical_llm_calls"] == sampled


def test_the_calls_of_another_run_are_reused_beside_those_of_the_sample(kgqa: Kgqa, here: Path) -> None:
    kgqa("evaluate", *WORLD, "run.limit=2", "run.dir=old")
    shown = kgqa("estimate", "estimate.questions=24", *WORLD, "run.reuse=[old]")
    advice = f"add 'run.reuse=[old,{here}/run-sample]' in place of 'run.reuse=[old]'"
    assert shown.out.splitlines()[-1].endswith(advice)


def test_questions_of_a_reused_run_are_projected_apart(kgqa: Kgqa, here: Path) -> None:
    """The calls of the first 60 questions exist, those of the other 100 do not."""
    kgqa("evaluate", *WORLD, "run.limit=60", "run.dir=old")
    kgqa("evaluate", *WORLD, "run.reuse=[old]")
    words = (*WORLD, "run.reuse=[old]", "estimate.questions=48", "run.dir=estimated", "json=true")
    figures = json.loads(kgqa("estimate", *words).out)["figures"]
    made = next(each for each in figures if each["figure"] == "calls that are made")
    assert made["low"] <= spent(here / "run")["physical_llm_calls"] <= made["high"]


def test_a_sample_that_is_reused_whole_tells_nothing_about_the_others(kgqa: Kgqa, here: Path) -> None:
    kgqa("estimate", "estimate.questions=24", *WORLD)
    again = ("estimate", *WORLD, "run.dir=again", "run.reuse=[run-sample]")
    refused = kgqa(*again, "estimate.questions=24").sentence
    assert refused.startswith("run.reuse holds the whole sample, which then does not tell the cost of 136 further")
    assert "give run.restart=true, and a larger estimate.questions (here 24) or no run.reuse" in refused
    assert kgqa(*again, "estimate.questions=48", "run.restart=true").code == 0


def test_a_sample_with_other_reused_calls_is_asked_again(kgqa: Kgqa, here: Path) -> None:
    def made(*words: str) -> float:
        figures = json.loads(kgqa("estimate", *WORLD, "estimate.questions=48", *words, "json=true").out)["figures"]
        return float(next(each["value"] for each in figures if each["figure"] == "calls that are made"))

    kgqa("estimate", "estimate.questions=24", *WORLD)
    alone = made("run.dir=alone")
    assert made("run.dir=again", "run.reuse=[run-sample]") > 0
    refused = kgqa("estimate", *WORLD, "run.dir=again", "estimate.questions=48").sentence
    assert refused == (
        f"the sample in {here}/again-sample was asked with 'run.reuse=[run-sample]', and not with 'run.reuse=[]', so "
        "it does not tell which calls are made: ask it again with run.restart=true"
    )
    assert made("run.dir=again", f"run.reuse=[{here}/run-sample,run-sample]") > 0, "the same folder in other words"
    (shard, *_) = sorted((here / "again-sample" / "traces").iterdir())
    shard.unlink()
    assert kgqa("estimate", *WORLD, "run.dir=again", "estimate.questions=48").sentence == refused
    assert not shard.exists(), "it is refused before a call is made"
    assert made("run.dir=again", "run.restart=true") == alone


def test_an_earlier_run_from_which_no_call_is_taken_changes_no_estimate(kgqa: Kgqa, here: Path) -> None:
    kgqa("estimate", "estimate.questions=24", *WORLD)
    words = ("estimate", *WORLD, "method=tog", "estimate.questions=24", "json=true")
    alone, beside = kgqa(*words, "run.dir=alone"), kgqa(*words, "run.dir=beside", "run.reuse=[run-sample]")
    assert json.loads(beside.out)["figures"] == json.loads(alone.out)["figures"]


def test_the_sample_of_a_sweep_over_datasets_is_that_of_each(kgqa: Kgqa, here: Path) -> None:
    shown = kgqa("estimate", "method=cot", "llm=oracle", "dataset.triples=2000", "dataset.questions=5,100")
    assert shown.code == 0, shown.err
    assert "projected from 5 of 5 questions of the first dataset" in shown.out
    said = " ".join(shown.out.split())
    assert "estimate.questions=20, but a dataset has only 5 questions: all were asked" in said


def test_a_sample_has_a_part_for_each_worker_whatever_their_number(kgqa: Kgqa, here: Path) -> None:
    assert kgqa("estimate", "estimate.questions=24", *WORLD).code == 0
    shards = sorted((here / "run-sample" / "traces").iterdir())
    assert len(shards) == 24
    more = ("engine.concurrency=100", "estimate.tokens_per_s_per_gpu=9")
    shown = kgqa("estimate", "estimate.questions=24", *WORLD, *more)
    assert "100 questions in flight, of the sample 24" in " ".join(shown.out.split())
    assert sorted((here / "run-sample" / "traces").iterdir()) == shards, "it is the same sample, not asked again"


def test_the_rate_of_a_served_model_is_measured(kgqa: Kgqa, model_server: Callable[..., tuple], here: Path) -> None:
    model, words = model_server()
    shown = kgqa("estimate", "method=cot", "dataset.triples=2000", "estimate.usd_per_gpu_hour=2", *words)
    assert shown.code == 0, shown.err
    assert "measured rate" in shown.out
    assert "measured under the load of the sample" in shown.out
    assert "characters" not in shown.out
    assert model.requests == 20
    before = model.requests
    kgqa("estimate", "method=cot", "dataset.triples=2000", *words)
    assert model.requests == before, "a second estimate finds the first one's sample"


def test_the_rate_of_a_sample_that_was_stopped_and_resumed_is_not_known(
    kgqa: Kgqa, model_server: Callable[..., tuple], here: Path
) -> None:
    _, words = model_server()
    command = ("estimate", "method=cot", "dataset.triples=2000", "run.dir=runs/r", *words)
    kgqa(*command)
    Path("runs/r-sample/summary.json").unlink()  # as by a kill after the last shard
    shown = kgqa(*command)
    assert shown.code == 0, shown.err
    said = " ".join(shown.out.split())
    assert (
        "only the time of the sample's last attempt is known: GPU hours and hours need the speed of the model" in said
    )
    assert "measured rate" not in said


def test_the_rate_of_a_sample_whose_failed_question_was_asked_again_is_not_known(
    kgqa: Kgqa, model_server: Callable[..., tuple], here: Path
) -> None:
    _, words = model_server(refuses_every=10)
    command = ("estimate", "method=cot", "dataset.triples=2000", "run.dir=runs/r", "run.max_failed=1", *words)
    assert "measured rate" in kgqa(*command).out
    again = " ".join(kgqa(*command, "run.retry_failed=true").out.split())
    assert "only the time of the sample's last attempt is known" in again


class EndedSample:
    """The folder of a sample whose questions took 18 seconds by the clock, after 2 in which models were opened."""

    @staticmethod
    def read_summary() -> dict[str, Any]:
        return {"wall_s": 20.0, "opening_s": 2.0, "resumed": False}


def test_the_last_questions_of_a_sample_count_once() -> None:
    """Each of 64 questions took 10 seconds on average: with all of them in flight, the sample had taken 10 seconds."""
    sampling = Sampling(64, Console())
    sampling.batches = [(EndedSample(), [])]  # type: ignore[list-item]
    spent = {
        "busy_s": 640.0,
        "longest_s": 15.0,
        "physical_calls": 100.0,
        "prompt_tokens": 4e3,
        "completion_tokens": 1e3,
    }
    assert _measured_rate(sampling, spent, gpus=1, in_flight=64) == 500
    assert _end_s(sampling, spent, in_flight=64) == 8
    assert _end_s(sampling, {**spent, "busy_s": 1280.0}, in_flight=64) == 0
    other = {**spent, "longest_s": 2.0}  # what is longer than a question is no end: each takes time besides its answer
    assert _end_s(sampling, other, in_flight=64) == 2
    assert _measured_rate(sampling, other, gpus=1, in_flight=64) == 5000 / 16


def test_a_sample_with_too_many_failed_questions_says_why(kgqa: Kgqa, model_server: Callable[..., tuple]) -> None:
    _, words = model_server(refuses_every=2)
    shown = kgqa("estimate", "method=cot", "dataset.triples=2000", "run.max_failed=0.1", *words)
    said = " ".join(shown.out.split())
    assert shown.code == FAILED_RUN
    assert "the estimate may be too low, as failed questions of the sample count with what they cost until " in said
    assert "10 × RequestRefused: " in said
    assert "than run.max_failed allows: exit code 3" in said


def test_a_sample_with_unreadable_replies_says_that_they_are_asked_for_again(
    kgqa: Kgqa, model_server: Callable[..., tuple]
) -> None:
    _, words = model_server(says="no braces")
    shown = kgqa("estimate", "method=cot", "dataset.triples=2000", "estimate.questions=5", *words)
    said = " ".join(shown.out.split())
    assert shown.code == 0, shown.err
    assert "and all calls that were made are in the estimate: 100.0 % of the model calls had a reply " in said


def test_the_calls_of_failed_questions_are_made(kgqa: Kgqa, model_server: Callable[..., tuple]) -> None:
    _, words = model_server(refuses_every=10)
    shown = kgqa("estimate", "method=cot", "dataset.triples=2000", "run.max_failed=1", *words, "json=true")
    alone, made = (each["value"] for each in json.loads(shown.out)["figures"][:2])
    assert alone == made


def test_a_sample_whose_questions_all_failed_tells_no_cost(kgqa: Kgqa, model_server: Callable[..., tuple]) -> None:
    _, words = model_server(refuses_every=1)
    shown = kgqa("estimate", "method=cot", "dataset.triples=2000", "estimate.questions=5", *words)
    said = " ".join(shown.err.split())
    assert shown.code == 2
    assert "every question of the sample failed, so it tells no cost: RequestRefused: " in said
    assert "reuse" not in said


def test_a_server_that_charges_by_tokens_has_a_price(
    kgqa: Kgqa, model_server: Callable[..., tuple], here: Path
) -> None:
    _, words = model_server()
    prices = ("estimate.usd_per_million_prompt_tokens=1000", "estimate.usd_per_million_completion_tokens=5000")
    command = ("estimate", "method=cot", "dataset.triples=2000", "run.dir=run", *words, *prices)
    shown = kgqa(*command, "json=true")
    assert shown.code == 0, shown.err
    (price,) = (each for each in json.loads(shown.out)["figures"] if each["figure"] == "US dollars for tokens")
    (point,) = spent(here / "run-sample")["points"]
    paid = point["prompt_tokens"] / 1000 + 5 * point["completion_tokens"] / 1000
    assert price["low"] <= price["value"] <= price["high"]
    assert price["value"] > paid > 0, "the sample is a part of the run"
    assert f"the tokens of the sample cost {paid:,.2f} US dollars at the prices given" in kgqa(*command).out
    cheap = ("estimate.usd_per_million_prompt_tokens=0.1", "estimate.usd_per_million_completion_tokens=0.5")
    told = " ".join(kgqa(*command[:-2], *cheap).out.split())
    assert "US dollars at the prices given" in told
    assert "cost 0.00 US dollars" not in told
    assert "the prices are taken for the tokens of all models" not in told
    _, others = model_server()
    (here / "two.txt").write_text("".join(f"{' '.join(each)}\n" for each in (words, others)))
    told = " ".join(kgqa("estimate", "two.txt", *command[1:3], "run.dir=two", *prices).out.split())
    assert "the prices are taken for the tokens of all models (" in told


def test_wrong_arguments(kgqa: Kgqa) -> None:
    assert kgqa("estimate", "estimate.question=3").sentence.startswith("unknown key 'estimate.question'.")
    assert kgqa("estimate", "estimate.questions=1").sentence.startswith("estimate.questions=1 is wrong")
    one_price = kgqa("estimate", "estimate.usd_per_million_prompt_tokens=1").sentence
    assert one_price.endswith("estimate.usd_per_million_prompt_tokens and estimate.usd_per_million_completion_tokens")
    assert kgqa("estimate", "metod=srp").sentence == "unknown key 'metod'. Did you mean 'method'?"


def test_a_model_on_the_cpu_has_no_gpu_hours(kgqa: Kgqa, here: Path) -> None:
    words = ("method=cot", "llm=embedded", "llm.max_new_tokens=8", "dataset.triples=2000", "run.limit=6")
    shown = kgqa("estimate", *words, "estimate.questions=2", "estimate.gpus=4", "evaluation.bootstrap_resamples=100")
    assert shown.code == 0, shown.err
    assert "tokens a second on this CPU, measured under the load of the sample" in shown.out
    assert "GPU" not in shown.out


def test_rows_that_cannot_be_read_are_not_counted(kgqa: Kgqa, here: Path) -> None:
    question = {"question": "Who is Ann's son?", "topic_entities": ["Ann"], "answers": ["Bob"]}
    rows = [json.dumps({"id": f"q{number}", **question}) for number in range(6)]
    (here / "graph.tsv").write_text("Ann\tson\tBob\n")
    (here / "rows.jsonl").write_text("\n".join([*rows, '{"id": "half']))
    words = ["dataset=custom", "dataset.triples=graph.tsv", "dataset.questions=rows.jsonl", "llm=similarity"]
    shown = kgqa("estimate", "method=cot", *words, "estimate.questions=3", "json=true")
    assert json.loads(shown.out)["questions"] == 6


def test_a_sample_of_all_questions_is_noted(kgqa: Kgqa, here: Path) -> None:
    words = ("estimate", "method=cot", "llm=oracle", "dataset.triples=2000", "run.limit=6")
    assert "all were asked" not in kgqa(*words, "estimate.questions=6").out
    shown = kgqa(*words, "estimate.questions=50").out
    assert "estimate.questions=50, but the run has only 6 questions: all were asked" in shown.replace("\n", " ")


def test_a_server_that_counts_no_tokens_is_named(kgqa: Kgqa, model_server: Callable[..., tuple], here: Path) -> None:
    _, words = model_server(counts_tokens=False)
    command = ("method=cot", "dataset.triples=2000", "run.limit=20", *words)
    shown = kgqa("estimate", *command, "estimate.questions=4", "estimate.tokens_per_s_per_gpu=100")
    assert shown.code == 0, shown.err
    assert (
        "the servers report no token counts (`usage`), so no cost of tokens and no time can be projected" in shown.out
    )
    figures = json.loads(kgqa("estimate", *command, "estimate.questions=4", "json=true").out)["figures"]
    known = {each["figure"]: each.get("value") for each in figures}
    assert known["calls that are made"] == 20
    assert {known[figure] for figure in ("prompt tokens", "completion tokens", "GPU hours", "hours")} == {None}
    run = kgqa("evaluate", *command, "run.dir=whole").out
    assert "the model servers reported no token counts (`usage`): the tokens are not known, and shown as 0" in run
    (listed,) = json.loads(kgqa("ls", "whole", "json=true").out)["runs"]
    assert listed["tokens"] is None
    _, partly = model_server(counts_none_every=4)
    for command_of in (("evaluate", "run.dir=partly"), ("estimate", "estimate.questions=20")):
        name, *more = command_of
        said = " ".join(kgqa(name, *command[:2], *partly, "run.limit=20", *more).out.split())
        assert " of the replies to 20 model calls had no token counts (`usage`): the tokens, and the costs" in said
    assert json.loads((here / "partly" / "summary.json").read_text())["points"][0]["calls_without_tokens"] == 5
    _, refusing = model_server(refuses_every=1)
    failed = kgqa("evaluate", *command[:2], *refusing, "run.limit=4", "run.dir=failed")
    assert "no such thing for" in failed.out
    assert "the model servers reported no token counts" not in failed.out, "no reply could have had any"
