"""The benchmark of a GPU, with small sizes on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli.benchmarks.gpu import Sizes, measure_gpu

pytestmark = [pytest.mark.large, pytest.mark.needs_vllm]


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
