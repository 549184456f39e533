"""`json=true`: one JSON document of the figures on stdout, and nothing else there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.cli.commands import COMMANDS
from tests.cli.conftest import WORLD
from tests.cli.support import Kgqa

RUN = (*WORLD, "llm=oracle", "llm.error_rate=0.3", "run.dir=run")


def document(kgqa: Kgqa, *words: str | Path) -> dict[str, Any]:
    shown = kgqa(*words, "json=true")
    assert shown.code == 0, shown.err
    assert shown.out.count("\n") == 1
    found: dict[str, Any] = json.loads(shown.out)
    assert isinstance(found["notes"], list)
    return found


def saved(folder: str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())
    del summary["digest"]
    return summary


def test_the_commands_that_print_figures() -> None:
    """All that come to an end: a server runs until it is stopped."""
    assert {name for name, command in COMMANDS.items() if not command.prints_figures} == {
        *("graph serve", "llm serve", "view")
    }


def test_evaluate_and_score_print_the_summary(kgqa: Kgqa) -> None:
    found = document(kgqa, "evaluate", "method=cot", *RUN)
    notes = ["every reply of the model could be read", "no question met a limit of budget"]
    figures = {"unreadable_roles": [], "notes": notes}
    assert found == {"run": str(Path("run").absolute()), **saved("run"), **figures}
    assert document(kgqa, "score", "run") == {"run": "run", **saved("run"), **figures}


def test_show_prints_the_messages_of_each_call(kgqa: Kgqa) -> None:
    assert kgqa("evaluate", *RUN).code == 0
    found = document(kgqa, "show", "run", "sample-test-000000")
    prompts = [step["prompt"] for step in found["steps"] if step["kind"] == "llm"]
    assert prompts
    assert all({message["role"] for message in prompt} >= {"user"} for prompt in prompts)
    assert found["text"] in prompts[-1][-1]["content"]


def test_json_false_prints_tables(kgqa: Kgqa) -> None:
    assert kgqa("evaluate", *RUN, "json=false").out == kgqa("evaluate", *RUN).out


def test_score_of_predictions_has_the_rules(kgqa: Kgqa) -> None:
    Path("mine.jsonl").write_text('{"id": "sample-test-000000", "answers": ["x"]}')
    dataset = ("dataset.triples=2000", "dataset.questions=2", "evaluation.bootstrap_resamples=100")
    found = document(kgqa, "score", "predictions=mine.jsonl", "peers=true", *dataset)
    assert found["points"][0]["questions"] == 2
    assert {"system", "metric", "mean", "counted"} == set(found["rules"][0])
    assert len(found["notes"]) == 1, "one question has no prediction"


def test_sweep_prints_the_summary_of_each_run_folder(kgqa: Kgqa) -> None:
    found = document(kgqa, "sweep", "method=cot", "method.depth=1,2", *RUN)
    (run,) = found["runs"]
    assert {**saved("run"), "run": run["run"], "unreadable_roles": []} == run
    assert found["physical_llm_calls"] == run["physical_llm_calls"]


@pytest.mark.exhaustive
def test_ablations_print_each_effect(kgqa: Kgqa) -> None:
    found = document(kgqa, "ablations", "method=r3", *RUN)
    points = {point["point"]: point for point in found["points"]}
    for effect in found["effects"]:
        if effect["score_name"] == "hits_at_1":
            assert effect["score"] == pytest.approx(points[effect["point"]]["hits_at_1"])
            assert effect["difference"] == pytest.approx(effect["score"] - effect["base_score"])


@pytest.mark.exhaustive
def test_reproduce_prints_every_published_figure(kgqa: Kgqa) -> None:
    stand_in = "reproduce.stand_in=['dataset=synthetic','dataset.triples=2000','run.limit=2']"
    small = ("llm=oracle", "run.dir=run", "evaluation.bootstrap_resamples=100", stand_in)
    found = document(kgqa, "reproduce", *small)
    written = json.loads(Path("run/reproduction.json").read_text())
    assert {name: found[name] for name in written} == written


def test_estimate_prints_each_projection(kgqa: Kgqa) -> None:
    found = document(kgqa, "estimate", "estimate.questions=4", *RUN)
    assert (found["questions"], found["sampled"]) == (20, 4)
    made = next(figure for figure in found["figures"] if figure["figure"] == "calls that are made")
    assert made["low"] <= made["value"] <= made["high"]
    assert made["known"] == "measured"


def test_doctor_prints_findings_and_keeps_its_exit_code(kgqa: Kgqa) -> None:
    shown = kgqa("doctor", "dataset.triples=2000", "llm=oracle", "run.dir=/sys/kgqa", "json=true")
    assert shown.code == 1
    found = json.loads(shown.out)
    assert found["counts"]["problem"] == len([each for each in found["findings"] if each["level"] == "problem"]) > 0
    assert all(each["fix"] for each in found["findings"] if each["level"] == "problem")


def test_capacity_prints_projections_and_limits(kgqa: Kgqa) -> None:
    found = document(kgqa, "capacity", "gpus=[1,8]", "questions={webqsp: 40, cwq: 40, grailqa: 40, metaqa: 40}")
    assert {each["gpus"] for each in found["projections"]} == {1, 8}
    assert all(each["wall_s"] > 0 and 0 < each["utilisation"] <= 1 for each in found["projections"])
    assert found["limits"] == sorted(found["limits"], key=lambda each: each["gpus"])


def test_benchmark_prints_the_figures_by_name(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.cli.benchmark.BENCHMARKS", {"fast": lambda: {"calls_per_s": 2.5}})
    assert document(kgqa, "benchmark", "fast") == {"fast": {"calls_per_s": 2.5}, "notes": []}
    shown = kgqa("benchmark", "fast")
    assert re.search(r"calls_per_s +│ 2.5 ", shown.out)
    assert shown.err == "measuring fast: \n"


def test_graph_load_counts_what_it_loaded(kgqa: Kgqa) -> None:
    load = ("graph", "load", "dataset.triples=2000", "output=store")
    found = document(kgqa, *load)
    assert (found["triples"], found["read"], found["rejected"], found["estimated"]) == (2041, 2041, 0, [])
    assert found["fingerprint"].startswith("2041-")
    shutil.rmtree("store")
    lines = kgqa(*load).out.splitlines()
    assert lines[1].split() == [f"{found['entities']:,}", "entities"]
    assert lines[-1] == f"fingerprint {found['fingerprint']}"
    assert document(kgqa, *load[:-1], "target=ntriples", "output=graph.nt")["fingerprint"] is None


def test_report_names_its_file(finished: Path, kgqa: Kgqa) -> None:
    assert document(kgqa, "report", finished, "output=page.html")["output"] == "page.html"
    assert Path("page.html").is_file()


def test_init_model_counts_weights_and_tokens(kgqa: Kgqa) -> None:
    found = document(kgqa, "init-model", "output=llama", "dataset.triples=2000", "shape.vocabulary=700")
    assert (found["output"], found["tokens"]) == ("llama", 700)
    assert found["weights"] > 10_000


def test_build_references_counts_questions_and_reasons(kgqa: Kgqa) -> None:
    small = ("dataset.triples=2000", "dataset.split=train", "run.limit=30", "references.clusters=4")
    found = document(kgqa, "build-references", *small, "references.output=references.jsonl")
    assert found["questions"] == 30
    assert found["references"] == len(Path("references.jsonl").read_text().splitlines())
    assert set(found) == {"questions", "eligible", "rejected", "clusters", "references", "output", "notes"}


def test_collections_print_their_report(kgqa: Kgqa) -> None:
    train = ("dataset.triples=2000", "dataset.split=train", "run.limit=8")
    for words, report in (
        (("collect", "arg", *train, "output=arg.jsonl"), "arg.report.json"),
        (("collect", "parog", *train, "output=parog.jsonl"), "parog.report.json"),
        (("collect", "rog", *train, "output=rog.jsonl"), "rog.report.json"),
        (("collect", "calls", "run", "output=calls.jsonl"), "calls.report.json"),
    ):
        kgqa("evaluate", "method=cot", "llm=oracle", *train[:1], "dataset.split=dev", "run.limit=4", "run.dir=run")
        found = document(kgqa, *words)
        written = json.loads(Path(report).read_text())
        assert {name: found[name] for name in written} == written
        assert found["output"] == words[-1].removeprefix("output=")


@pytest.mark.parametrize("name", ["train arg", "train parog", "train rog"])
def test_training_prints_the_size_of_the_model(name: str, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/integration/test_fine_tuning.py` trains."""
    llama = SimpleNamespace(num_parameters=lambda: 1234)
    trained = SimpleNamespace(model=llama, save=lambda output, _: None)
    monkeypatch.setattr("pipeline.training.sft.job.fine_tune", lambda *_: trained)
    found = document(kgqa, *name.split(), "model=llama", "texts=texts.jsonl", "output=trained")
    assert found["weights"] == 1234


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("evaluate json=yes", "json=yes is wrong: input should be true or false"),
        ("llm serve llm.model=x json=true", "unknown key 'json'"),
    ],
)
def test_mistakes(words: str, sentence: str, kgqa: Kgqa) -> None:
    assert kgqa(*words.split()).sentence.startswith(sentence)
