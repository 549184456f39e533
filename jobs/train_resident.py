"""For `kgqa train resident`: collect what it learns, put it together, and make a Llama to train (docs/resident.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jobs import collect, evaluate, llm
from pipeline.datasets.files import find
from pipeline.errors import UserError
from pipeline.training.mixture import Part, write_mixture

_HOPS = (1, 2, 3)
_ALL = {"": 1.0}

_KNOWN = {1: {"": 0.5}, 2: _ALL, 3: {"": 0.78}}
_SHORTEST = {1: {"": 0.34}, 2: {"": 0.5}, 3: _ALL}
"""Of ArG's texts, by hops. What three hops hold is also what one and two do, so the short ones may be fewer."""

_OFFERED = "collect.retrieve_k=[1,2,3,5]"
"""Relations offered at a hop. A node of MetaQA has few, and a small model has to have seen as few."""

_WORLDS = (101, 102)
"""Seeds of the sample worlds that ArG's texts tell of. None is the one that runs are measured on."""
_WORLD_SIZES = (3000, 20000)


class _Calls(NamedTuple):
    """The calls of a method that are learned."""

    name: str
    method: str
    words: list[str]
    shares: Mapping[str, float]
    """Those taken, by role."""
    hops: tuple[int, ...] = _HOPS
    """Of MetaQA."""
    worlds: tuple[int, ...] = (2024,)
    """Seeds of the sample worlds."""
    questions: int | None = None
    """Of each source, at most; None takes all."""


_OTHERS = 700
"""Questions of each source that the other methods are asked: what they say the same each time is soon learned."""

_CALLS = (
    _Calls("searches", "arg", ["method.depth=3"], _ALL, worlds=tuple(range(11, 17))),
    _Calls(
        "short-searches",
        "arg",
        ["method.depth=3", "method.max_tails_shown=1"],
        _ALL,
        hops=(1,),
        worlds=tuple(range(21, 25)),
    ),
    _Calls("srp", "srp", ["method.num_references=0"], {"": 0.4, "srp.judge": 0.12}, questions=_OTHERS),
    _Calls("parog", "parog", ["method.planner=prompted"], {"": 0.2}, questions=_OTHERS),
    _Calls("r3", "r3", [], {"r3.thought": 0.08, "r3.action": 0.15, "r3.verify": 0.3}, questions=_OTHERS),
)
"""Of ArG all calls of a question, which are little more than one where what they have in common is computed once. Those
of one hop are there twice, or there would be too few names. PARoG's planner is prompted: a finetuned one is asked the
question alone, as ArG's generator is, and a model could not tell them apart."""


def parts(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings of each training, the one that begins from what another makes behind it."""
    trainings: list[dict[str, Any]] = []
    model = settings["model"]
    for name, part in settings["parts"].items():
        paths = {"model": model, "texts": part["texts"], "storage": f"{settings['storage']}/{name}"}
        model = part["output"]
        trainings.append({**settings, **paths, "output": model, "recipe": settings["recipe"] | part["recipe"]})
    return trainings


def prepare(settings: Mapping[str, Any]) -> None:
    """Make the texts, and the Llama that is to be trained on them, where they are missing. Raises UserError."""
    sources = Path(settings["metaqa"]), Path(settings["material"]), settings["limit"]
    walks, calls = (Path(settings["parts"][name]["texts"]) for name in ("walks", "calls"))
    collections = {walks: _walks(*sources), calls: _calls(*sources)}
    for texts, collected in collections.items():
        if not texts.exists():
            taken = write_mixture(list(collected), texts)
            print(f"{texts}: {taken.total():,} texts ({', '.join(f'{n:,} {role}' for role, n in taken.items())})")
    if not Path(settings["model"]).exists():
        shape = [f"shape.{key}={value}" for key, value in settings["shape"].items() if key != "_target_"]
        words = [f"texts=[{walks},{calls}]", f"output={settings['model']}", f"seed={settings['recipe']['seed']}"]
        _succeed(llm.main(["make", *words, *shape]))


class _Collection(NamedTuple):
    """A file of texts, and the words of the command that makes it."""

    name: str
    words: list[str]
    shares: Mapping[str, float]


def _walks(metaqa: Path, folder: Path, limit: int | None) -> Iterator[Part]:
    """ArG's texts."""
    for collection in (*_metaqa_walks(metaqa, limit), *_sample_walks(limit)):
        output = folder / f"{collection.name}.jsonl"
        if not output.exists():
            words = [*collection.words, f"output={output}", f"run.dir={folder}/runs/{collection.name}"]
            _succeed(collect.main(["arg", *words]))
        yield Part(output, collection.shares)


def _metaqa_walks(metaqa: Path, limit: int | None) -> Iterator[_Collection]:
    for paths, shares, most in (("known", _KNOWN, None), ("shortest", _SHORTEST, 3000)):
        for hops in _HOPS:
            words = [*_dev(metaqa, hops), f"collect.paths={paths}", _OFFERED, _held_out(metaqa), _at_most(most, limit)]
            yield _Collection(f"walks-{paths}-{hops}", words, shares[hops])


def _sample_walks(limit: int | None) -> Iterator[_Collection]:
    for seed in _WORLDS:
        for triples in _WORLD_SIZES:
            world = ["dataset=sample", f"dataset.seed={seed}", f"dataset.triples={triples}"]
            train = [*world, "dataset.split=train", "collect.paths=known", _at_most(1000, limit)]
            yield _Collection(f"walks-sample-{seed}-{triples}", train, _ALL)
            dev = [*world, "dataset.split=dev", "collect.paths=shortest", _at_most(500, limit)]
            yield _Collection(f"walks-sample-short-{seed}-{triples}", dev, _ALL)


def _calls(metaqa: Path, folder: Path, limit: int | None) -> Iterator[Part]:
    """The calls of each method, in the wording that the model will be sent."""
    for of in _CALLS:
        for source, words, held_out in _sources(of, metaqa):
            name = f"calls-{of.name}-{source}"
            run, output = folder / "runs" / name, folder / f"{name}.jsonl"
            if not output.exists():
                asked = [f"method={of.method}", *of.words, *words, _at_most(of.questions, limit)]
                _succeed(evaluate.main([*asked, "llm=oracle", "llm.prompts=compact", f"run.dir={run}"]))
                _succeed(collect.main(["calls", str(run), *held_out, "collect.joined=true", f"output={output}"]))
            yield Part(output, of.shares)


def _sources(of: _Calls, metaqa: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """What is asked: a name, the words for it, and those for what is held out."""
    for hops in of.hops:
        yield f"metaqa-{hops}", _dev(metaqa, hops), [_held_out(metaqa)]
    for seed in of.worlds:
        yield f"sample-{seed}", ["dataset=sample", "dataset.split=train", f"dataset.seed={seed}"], []


def _at_most(questions: int | None, limit: int | None) -> str:
    fewest = min((number for number in (questions, limit) if number is not None), default="null")
    return f"run.limit={fewest}"


def _dev(metaqa: Path, hops: int) -> list[str]:
    return ["dataset=metaqa", f"dataset.path={metaqa}", f"dataset.hops={hops}", "dataset.split=dev"]


def _held_out(metaqa: Path) -> str:
    """The test questions of all hops: a few of the dev questions are among them."""
    places = [(f"{hops}-hop/qa_test.txt", f"{hops}-hop/vanilla/qa_test.txt") for hops in _HOPS]
    files = [file for place in places for file in find(metaqa, place, what="MetaQA test questions, to be held out,")]
    return f"material.held_out=[{','.join(map(str, files))}]"


def _succeed(code: int) -> None:
    if code:
        raise UserError("the material could not be collected; the reason stands above")
