"""One GPU trains, serves the bundled Llama as this process answers with it, and is kept busy by the pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli.benchmarks.gpu import FULL, measure_gpu, measure_served
from pipeline.cli.main import main
from pipeline.llm.embedded.bundled import BUNDLED_MODEL

pytestmark = pytest.mark.timeout(3600)


def test_vllm_answers_as_the_model_in_this_process(tmp_path: Path) -> None:
    figures = measure_served(tmp_path / "served", FULL)
    # In half precision, tokens with almost equal probabilities may change places.
    assert figures["same_answers"] >= 0.95


def test_all_figures_can_be_measured(tmp_path: Path) -> None:
    figures = measure_gpu(tmp_path, FULL, device="cuda")
    assert all(value > 0 for value in figures.values())


def test_fine_tuning_on_the_gpu_makes_a_model_that_answers(tmp_path: Path) -> None:
    texts, model = tmp_path / "texts.jsonl", tmp_path / "model"
    assert main(["collect", "arg", "dataset=synthetic", "dataset.split=train", f"output={texts}"]) == 0
    trained = [f"texts=[{texts}]", f"model={BUNDLED_MODEL}", f"output={model}", "recipe.max_steps=20"]
    assert main(["train", "arg", *trained, "workers.count=1", "workers.gpus=true"]) == 0
    answered = ["method=arg", "llm=embedded", f"llm.model={model}", "run.limit=5", f"run.dir={tmp_path / 'run'}"]
    assert main(["evaluate", *answered]) == 0
