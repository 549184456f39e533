"""The Llama that comes with the package. Against vLLM: `tests/integration/test_embedded.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from pipeline.llm.embedded.model import RESIDENT
from tests.jobs.conftest import kgqa
from tests.jobs.support import Kgqa

__all__ = ["kgqa"]
"""A fixture that runs a command."""


def walked(kgqa: Kgqa, *words: str) -> dict[str, Any]:
    """What the resident Llama reaches with ArG."""
    done = kgqa("evaluate", "method=arg", "llm=embedded", "run.dir=run", *words)
    assert done.code == 0, done.err
    (point,) = json.loads(Path("run/summary.json").read_text())["points"]
    return dict(point)


def test_its_weights_are_of_half_precision_and_at_most_20_mb() -> None:
    (weights,) = RESIDENT.glob("*.safetensors")
    assert weights.stat().st_size < 20e6
    with safe_open(weights, framework="np") as tensors:
        assert {tensors.get_slice(name).get_dtype() for name in tensors.keys()} == {"F16"}  # noqa: SIM118


@pytest.mark.parametrize(("hops", "least"), [(1, 0.9), (2, 0.9), (3, 0.9)])
def test_it_answers_questions_of_metaqa_that_it_never_saw(
    kgqa: Kgqa, shared_data: Path, hops: int, least: float
) -> None:
    metaqa = ["dataset=metaqa", f"dataset.path={shared_data / 'metaqa'}", f"dataset.hops={hops}"]
    point = walked(kgqa, "method.depth=3", "run.limit=40", *metaqa)
    assert (point["failed"], point["label"]) == (0, None), "by true probabilities"
    assert point["hits_at_1"] > least


def test_it_walks_the_sample_world_too(kgqa: Kgqa) -> None:
    assert walked(kgqa, "dataset.types=[1-hop,2-hop]", "run.limit=60")["hits_at_1"] > 0.6
