"""The bundled model. Against vLLM: `tests/integration/ray/test_embedded.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from pipeline.llm.embedded.model import BUNDLED_MODEL
from tests.cli.conftest import kgqa
from tests.cli.support import Kgqa

__all__ = ["kgqa"]
"""A fixture that runs a command."""


def walked(kgqa: Kgqa, *words: str) -> dict[str, Any]:
    """The score of the bundled model with ArG."""
    done = kgqa("evaluate", "method=arg", "llm=embedded", "run.dir=run", *words)
    assert done.code == 0, done.err
    (point,) = json.loads(Path("run/summary.json").read_text())["points"]
    return dict(point)


def test_its_weights_have_half_precision_and_at_most_20_mb() -> None:
    (weights,) = BUNDLED_MODEL.glob("*.safetensors")
    assert weights.stat().st_size < 20e6
    with safe_open(weights, framework="np") as tensors:
        assert {tensors.get_slice(name).get_dtype() for name in tensors.keys()} == {"F16"}  # noqa: SIM118


@pytest.mark.parametrize(
    ("hops", "questions"), [(1, 20), (2, 20), (3, 10), pytest.param(3, 40, marks=pytest.mark.exhaustive)]
)
def test_it_answers_metaqa_questions_outside_its_training_data(
    kgqa: Kgqa, shared_data: Path, hops: int, questions: int
) -> None:
    metaqa = ["dataset=metaqa", f"dataset.path={shared_data / 'metaqa'}", f"dataset.hops={hops}"]
    point = walked(kgqa, "method.depth=3", f"run.limit={questions}", *metaqa)
    assert (point["failed"], point["label"]) == (0, None), "by true probabilities"
    assert point["hits_at_1"] >= 0.9


def test_it_works_on_the_synthetic_world(kgqa: Kgqa) -> None:
    assert walked(kgqa, "dataset.types=[1-hop,2-hop]", "run.limit=60")["hits_at_1"] > 0.6
