"""Benchmarks run, and their figures are consistent. Speed is not tested."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.cli.benchmark import BENCHMARKS
from pipeline.cli.benchmarks.client import measure_client
from pipeline.cli.benchmarks.replay import recorded, replay_at_once, replay_questions
from pipeline.cli.benchmarks.runs import run_method
from pipeline.cli.benchmarks.search import search
from pipeline.cli.benchmarks.server import MODEL, TOKENS, serving
from pipeline.cli.benchmarks.servers import measure_servers
from pipeline.cli.benchmarks.viewer import viewer
from pipeline.cli.main import main


@pytest.mark.exhaustive
async def test_measures_three_clients_against_one_server() -> None:
    figures = await measure_client(calls=128, in_flight=8)
    assert all(value > 0 for value in figures.values())
    assert figures["endpoint_to_openai"] == pytest.approx(figures["endpoint_ms"] / figures["openai_ms"], rel=0.01)
    assert figures["endpoint_to_bare_http"] == pytest.approx(figures["endpoint_ms"] / figures["bare_http_ms"], rel=0.01)


async def test_measures_what_the_client_gets_through_several_servers() -> None:
    with serving(latency_s=0.05, slots=4) as one, serving(latency_s=0.05, slots=4) as other:
        rate, cpu_ms = await measure_servers([one, other], 16, None, warm_s=0.2, measured_s=1.0)
        _, with_another_process_ms = await measure_servers([one, other], 16, os.getpid(), warm_s=0.2, measured_s=1.0)
    assert rate > 0
    assert with_another_process_ms > cpu_ms > 0


def test_replays_as_many_calls_as_a_run_has_made(tmp_path: Path) -> None:
    summary = run_method(tmp_path / "run", ["method=arg", "llm=oracle", "dataset.triples=1000", "run.limit=4"])
    made = recorded(tmp_path / "run", as_long=True)
    calls = [call for calls in made for call in calls]
    assert len(made) == 4
    assert len(calls) == summary["logical_llm_calls"]
    assert all(
        call.sampling.max_tokens > call_as_long.sampling.max_tokens
        for call, call_as_long in zip(
            (call for calls in recorded(tmp_path / "run", as_long=False) for call in calls), calls, strict=True
        )
    )
    with serving() as url:
        for replaying in (replay_questions(url, made, in_flight=2), replay_at_once(url, MODEL, calls)):
            seconds, tokens = asyncio.run(replaying)
            assert seconds > 0
            assert tokens == TOKENS * len(calls)


@pytest.mark.exhaustive
def test_measures_the_viewer_on_copies_of_a_shard() -> None:
    figures = viewer(shards=6)
    assert figures["questions"] == 6 * 100 * 10
    assert all(figures[name] > 0 for name in ("index_s", "first_page_s", "text_search_s", "question_s", "peak_mib"))


def test_the_benchmark_of_a_gpu_says_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # also where there is one
    assert main(["benchmark", "gpu"]) == 2
    assert "kgqa benchmark gpu needs an NVIDIA GPU" in capsys.readouterr().err
    assert "gpu" in BENCHMARKS


@pytest.mark.exhaustive
def test_the_tests_of_a_gpu_say_that_there_is_none() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "pytest", "-q", "tests/gpu"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "tests/gpu needs an NVIDIA GPU" in done.stdout + done.stderr
    assert "skipped" not in done.stdout


@pytest.mark.exhaustive
def test_measures_the_compressed_search_after_two_kills_of_its_build() -> None:
    figures = search(nodes=4000)
    assert figures["shards_written_again"] == 0
    assert figures["shards_kept_after_kill"] >= 1
    assert figures["recall_at_1"] >= 0.95
    assert figures["flat_to_approximate"] == figures["flat_ms_per_query"] / figures["ms_per_query"]
