"""Benchmarks run, and their figures are consistent. Speed is not tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.cli.benchmark import BENCHMARKS
from pipeline.cli.benchmarks.client import measure_client
from pipeline.cli.benchmarks.gpu import Sizes, measure_gpu
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


@pytest.mark.exhaustive
@pytest.mark.needs_vllm
def test_measures_on_a_cpu_what_it_measures_on_a_gpu(tmp_path: Path) -> None:
    """The same code as `kgqa benchmark gpu`, with a Llama of a few thousand weights, on the CPU."""
    sizes = Sizes(
        shape={},
        training_questions=2,
        questions=4,
        in_flight=(2,),
        calls_a_slot=2,
        server=("--dtype=float32", "--enforce-eager", "--no-enable-chunked-prefill", "--max-model-len=4096"),
    )
    figures = measure_gpu(tmp_path, sizes, device="cpu")
    assert all(value > 0 for value in figures.values())
    assert figures["same_answers"] == 1
    assert figures["served_to_embedded"] == pytest.approx(
        figures["served_questions_per_s"] / figures["embedded_questions_per_s"]
    )
    assert {"training_large_shared_per_s", "training_bundled_apart_per_s", "2_in_flight_pipeline_to_bare"} <= set(
        figures
    )
