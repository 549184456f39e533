"""The bundled model. Against vLLM: `tests/integration/ray/test_embedded.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from safetensors import safe_open

from pipeline.config import default
from pipeline.llm.checkpoint import digest_of
from pipeline.llm.embedded.bundled import BUNDLED_MODEL, training
from pipeline.llm.embedded.model import EmbeddedModel
from pipeline.llm.roles import remarks
from pipeline.training.bundled_sources import METHODS
from pipeline.types import Example, Gold, Question
from tests.cli.conftest import kgqa
from tests.cli.support import Kgqa

DEMO = Path(__file__).resolve().parents[2] / "docs/bundled-model/demo.txt"

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


@pytest.mark.exhaustive
@pytest.mark.parametrize(("hops", "questions"), [(1, 20), (2, 20), (3, 40)])
def test_it_answers_metaqa_questions_outside_its_training_data(
    kgqa: Kgqa, shared_data: Path, hops: int, questions: int
) -> None:
    metaqa = ["dataset=metaqa", f"dataset.path={shared_data / 'metaqa'}", f"dataset.hops={hops}"]
    point = walked(kgqa, "method.depth=3", f"run.limit={questions}", *metaqa)
    assert (point["failed"], point["label"]) == (0, None), "by true probabilities"
    assert point["hits_at_1"] >= 0.9


@pytest.mark.parametrize(
    "questions", [pytest.param(16, marks=pytest.mark.smaller), pytest.param(40, marks=pytest.mark.exhaustive)]
)
def test_it_answers_most_questions_of_the_demo(kgqa: Kgqa, questions: int) -> None:
    done = kgqa("sweep", str(DEMO), "llm=embedded", f"run.limit={questions}", "run.dir=run")
    assert done.code == 0, done.err
    points = json.loads(Path("run/summary.json").read_text())["points"]
    assert [point["method"] for point in points] == ["arg", "srp"]
    assert all(point["hits_at_1"] >= 0.6 for point in points)


@pytest.mark.parametrize(("words", "cap"), [([], 64), (["llm.max_new_tokens=5"], 5)])
def test_another_method_is_said_at_the_start_and_gets_short_replies(kgqa: Kgqa, words: list[str], cap: int) -> None:
    done = kgqa("evaluate", "method=cot", "llm=embedded", "run.dir=run", "run.limit=2", *words)
    assert done.code == 0, done.err
    trained_for = ", ".join(training().methods)
    assert done.err.startswith(
        f"the bundled model was trained for {trained_for} on metaqa and synthetic, not for cot on synthetic:"
    )
    assert f"at most {cap} tokens (llm.max_new_tokens)" in done.err.splitlines()[0]
    calls = pl.read_parquet("run/traces/*.parquet")["steps"].explode().struct.field("completion_tokens").drop_nulls()
    assert 0 < calls.max() <= cap
    assert (calls.max() == cap) == ("replies that were cut off at the number of tokens that the method" in done.out)
    replay = ("evaluate", "method=cot", "llm=replay", "llm.run=run", "run.dir=again", "run.limit=2")
    said = kgqa(*replay)
    assert "the prompt's fixed text; that run had llm.prompt_style=inputs_only" in said.out
    again = kgqa(*replay, "llm.prompt_style=inputs_only")
    assert again.code == 0, "the limit is part of the key of a call"


@pytest.mark.parametrize(
    ("method", "dataset", "cap"),
    [
        ("arg", "metaqa-2hop", 1000),
        ("arg", "synthetic", 1000),
        ("arg", "webqsp", 64),
        ("srp", "metaqa-1hop", 1000),
        ("cot", "metaqa-1hop", 64),
    ],
)
def test_the_cap_and_the_identity_depend_on_what_it_was_trained_for(method: str, dataset: str, cap: int) -> None:
    model = default(EmbeddedModel)
    model.identity = "llama@1"
    example = Example(Question("q", dataset, "test", "?", ()), Gold(()))
    of_question = model.for_question(example, None)
    assert of_question.identity_of(f"{method}.any") == f"llama@1-max{cap}"
    assert bool(model.remark(method, dataset, {})) is (cap == 64)


def test_a_method_of_the_users_own_is_called_as_it_is_chosen() -> None:
    composed = {"choices": {"method": "my_method"}, "method": {}}
    (remark,) = remarks(default(EmbeddedModel), object(), "synthetic", composed)
    assert "not for my_method on synthetic" in remark


def test_a_model_of_the_users_own_is_neither_capped_nor_commented() -> None:
    model = default(EmbeddedModel, model="models/mine")
    assert model.cap("srp", "webqsp") is model.remark("srp", "webqsp", {}) is None


def test_other_keys_than_in_training_are_said_at_the_start(kgqa: Kgqa) -> None:
    run = ("evaluate", "llm=embedded", "run.limit=1", "dataset.triples=2000")
    said = kgqa(*run, *(word for word in METHODS["srp"] if "temperature" not in word), "run.dir=a").err.splitlines()[0]
    assert said.startswith("the bundled model was trained for srp with method.temperature=0: with other values")
    for method in ("arg", "srp"):
        words = [word for word in METHODS[method] if "depth" not in word]
        assert "was trained for" not in kgqa(*run, *words, f"run.dir={method}").err


def test_what_it_was_trained_for_is_no_part_of_its_identity() -> None:
    assert digest_of(BUNDLED_MODEL) == "e6d0161b"
