"""The sources of the bundled model's calls as data: which methods are run, on which questions, and how many.

`kgqa train bundled-model` reads these tables (docs/bundled-model.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pipeline.llm.embedded.bundled import training

METHODS: Mapping[str, Sequence[str]] = {
    method: (f"method={method}", *(f"method.{key}={value}" for key, value in keys.items()))
    for method, keys in training().methods.items()
}
"""Method → the overrides with which the bundled model is trained, and run by `docs/bundled-model/comparison.txt`."""

METAQA = ("metaqa-1", "metaqa-2", "metaqa-3")
SLICE = ("grailqa", "simple-questions", "made-questions")

_SLICE_GRAPH = ("dataset=custom", "dataset.split=train", "dataset.triples={freebase}/triples.tsv.gz")

DATA: Mapping[str, Sequence[str]] = {
    **{
        f"metaqa-{hops}": ("dataset=metaqa", "dataset.path={metaqa}", f"dataset.hops={hops}", "dataset.split=dev")
        for hops in (1, 2, 3)
    },
    "grailqa": (
        *_SLICE_GRAPH,
        "dataset.name=grailqa-slice",
        "dataset.questions={freebase}/grailqa.test1000.jsonl.gz",
        "dataset.filter={{gold_pattern_in_slice:true}}",
    ),
    "simple-questions": (
        *_SLICE_GRAPH,
        "dataset.name=simple-questions-slice",
        "dataset.questions={freebase}/simpleqa.test1000.jsonl.gz",
        "dataset.filter={{answerable_in_slice:true}}",
    ),
    "made-questions": (
        *_SLICE_GRAPH,
        "dataset.name=made-questions",
        "dataset.questions={material}/made-questions.jsonl",
    ),
}
"""Dataset → its overrides, with places for the folders that the user names. Test questions of MetaQA and the WebQSP and
CWQ questions of the slice are not among them, and are held out by their texts as well."""


IMPROVED = ("arg", "srp", "parog", "r3", "tog")
"""Methods that the trained model is run with, to be trained on what it should have written."""
OWN_WORLDS = (9001, 9002)
"""Seeds of the synthetic worlds of these runs."""


def world(seed: int) -> tuple[str, Sequence[str]]:
    """Return the name and the overrides of the synthetic world of a seed. The demo's seed is the default, 7."""
    return f"world-{seed}", ("dataset=synthetic", "dataset.split=train", f"dataset.seed={seed}")


class Source(NamedTuple):
    """The runs of one method whose calls are trained on."""

    method: str
    metaqa: Sequence[int]
    """Questions of 1, 2 and 3 hops."""
    worlds: int
    """Synthetic worlds, each with another seed."""
    of_world: int
    """Questions of each world."""
    slice: int
    """Questions of each of the datasets of the slice of Freebase."""
    error_rate: float = 0.15
    """How often the oracle errs in the run. At each call it is then asked again, without errors, and that reply is
    trained on, so that there are edits, reflections, retries and misleading evidence. 0 takes its calls as they are."""
    shares: Mapping[str, float] = {"": 1.0}
    """Beginning of a role → the share of its calls that is taken."""


SOURCES: Sequence[Source] = (
    Source("arg", (1500, 1500, 1500), worlds=4, of_world=400, slice=1200, error_rate=0),
    Source("srp", (600, 1000, 1000), worlds=4, of_world=150, slice=250),
    Source("parog", (600, 800, 800), worlds=4, of_world=100, slice=200),
    Source("r3", (700, 1000, 1000), worlds=4, of_world=100, slice=200),
    Source("tog", (200, 300, 300), worlds=2, of_world=80, slice=120),
    Source("pog", (150, 200, 200), worlds=2, of_world=80, slice=120),
    Source("dog", (100, 200, 200), worlds=2, of_world=80, slice=120),
    Source("rog", (150, 200, 200), worlds=2, of_world=80, slice=120),
    Source("rag", (100, 200, 200), worlds=2, of_world=80, slice=120),
)
"""The questions of one part of the training. A part draws its own questions and worlds, by its number."""
