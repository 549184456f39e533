"""What one GPU does: training, the bundled Llama under vLLM, its replies against those of the CPU, and saturation."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.analysis.runs import open_run
from pipeline.cli.benchmarks.runs import run_method
from pipeline.cli.benchmarks.training import measure_training
from pipeline.cli.benchmarks.vllm import measure_saturation
from pipeline.cli.benchmarks.world import refuse
from pipeline.config import default
from pipeline.llm.embedded.bundled import BUNDLED_MODEL
from pipeline.llm.vllm import VllmServer
from pipeline.simulation.world import SyntheticWorld
from pipeline.training.gpu import require_gpu
from pipeline.training.llama import Checkpoint, LlamaShape, make_llama
from pipeline.training.sft.config import SFTConfig
from pipeline.training.sft.model import open_base


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    shape: dict[str, int]
    """The shape of a Llama with random weights, as large as models in use."""
    training_questions: int
    """The calls of so many questions are trained on."""
    questions: int
    """The questions that the bundled Llama answers."""
    in_flight: tuple[int, ...]
    """Questions at the same time, of each measurement of saturation."""
    calls_a_slot: int
    """The questions of a measurement, per question in flight. Each makes eight calls."""
    server: tuple[str, ...] = ()
    """More arguments of vLLM's command line."""


FULL = Sizes(
    # About 1.2 billion weights.
    shape={"hidden_size": 2048, "layers": 20, "heads": 32, "key_value_heads": 8},
    training_questions=100,
    questions=500,
    in_flight=(64, 256, 1024),
    calls_a_slot=4,
    server=("--max-model-len=4096",),
)


def gpu() -> dict[str, float]:
    """On one GPU, without a network: training, the bundled Llama under vLLM, embedded against served, saturation."""
    name, gib = require_gpu("kgqa benchmark gpu")
    with tempfile.TemporaryDirectory() as folder:
        return {f"GiB of {name}": gib} | measure_gpu(Path(folder), FULL, device="cuda")


def measure_gpu(folder: Path, sizes: Sizes, *, device: str) -> dict[str, float]:
    """Return all figures. The same code runs on a CPU with small sizes."""
    large = make_llama(default(SyntheticWorld), refuse, default(LlamaShape, **sizes.shape), seed=0)
    large.save(folder / "large")
    figures = _training(large, sizes, device)
    del large  # its memory is that of the server now
    figures |= measure_served(folder / "bundled", sizes)
    return figures | _saturation(folder, sizes)


def _training(large: Checkpoint, sizes: Sizes, device: str) -> dict[str, float]:
    models = {"bundled": open_base(str(BUNDLED_MODEL), default(SFTConfig)), "large": large}
    return {
        f"training_{name}_{figure}": value
        for name, model in models.items()
        for figure, value in measure_training(model, questions=sizes.training_questions, device=device).items()
    }


def measure_served(folder: Path, sizes: Sizes) -> dict[str, float]:
    """Answer questions by the bundled Llama in this process, on the CPU, and by vLLM. Return speeds and agreement."""
    folder.mkdir()
    words = ["method=arg", f"run.limit={sizes.questions}", "engine.concurrency=64"]
    embedded = _questions_per_s(run_method(folder / "embedded", [*words, "llm=embedded"]))
    with VllmServer(str(BUNDLED_MODEL), folder / "server.log", sizes.server) as server:
        endpoint = ["llm=endpoint", f"llm.base_urls=[{server.base_url}]", "llm.prompt_style=inputs_only"]
        served = _questions_per_s(run_method(folder / "served", [*words, *endpoint]))
    one, other = (_answers(folder / name) for name in ("embedded", "served"))
    return {
        "embedded_questions_per_s": embedded,
        "served_questions_per_s": served,
        "served_to_embedded": served / embedded,
        "same_answers": sum(one[id] == other[id] for id in one) / len(one),
    }


def _questions_per_s(summary: Mapping[str, Any]) -> float:
    return float(summary["points"][0]["questions"] / (summary["wall_s"] - summary["opening_s"]))


def _answers(run: Path) -> dict[str, list[str]]:
    rows = open_run(str(run)).questions.select("question_id", "answers").collect().rows()
    return dict(rows)


def _saturation(folder: Path, sizes: Sizes) -> dict[str, float]:
    figures: dict[str, float] = {}
    with VllmServer(str(folder / "large"), folder / "large.log", sizes.server, resettable=True) as server:
        for in_flight in sizes.in_flight:
            measured = measure_saturation(
                server,
                folder / f"saturation-{in_flight}",
                questions=in_flight * sizes.calls_a_slot,
                in_flight=in_flight,
                rounds=1,
            )
            figures |= {f"{in_flight}_in_flight_{name}": value for name, value in measured.items()}
    return figures
