"""Benchmarks run, and their figures are consistent. Speed is not tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.cli.benchmark import BENCHMARKS
from pipeline.cli.benchmarks.client import measure_client
from pipeline.cli.benchmarks.search import search
from pipeline.cli.benchmarks.servers import servers
from pipeline.cli.benchmarks.viewer import viewer
from pipeline.cli.main import main


async def test_measures_three_clients_against_one_server() -> None:
    figures = await measure_client(calls=128, in_flight=8)
    assert all(value > 0 for value in figures.values())
    assert figures["endpoint_to_openai"] == pytest.approx(figures["endpoint_ms"] / figures["openai_ms"], rel=0.01)
    assert figures["endpoint_to_bare_http"] == pytest.approx(figures["endpoint_ms"] / figures["bare_http_ms"], rel=0.01)


def test_measures_what_the_client_gets_through_several_servers() -> None:
    figures = servers(counts=(2,), warm_s=0.5, measured_s=1.0)
    assert figures["2_servers_to_sum_of_rates"] == figures["2_servers_requests_per_s"] / 80
    assert all(value > 0 for value in figures.values())


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


def test_the_tests_of_a_gpu_say_that_there_is_none() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "pytest", "-q", "tests/gpu"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "tests/gpu needs an NVIDIA GPU" in done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_measures_the_compressed_search_after_two_kills_of_its_build() -> None:
    figures = search(nodes=4000)
    assert figures["shards_written_again"] == 0
    assert figures["shards_kept_after_kill"] >= 1
    assert figures["recall_at_1"] >= 0.95
    assert figures["flat_to_approximate"] == figures["flat_ms_per_query"] / figures["ms_per_query"]
