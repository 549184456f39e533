"""Prepares `kgqa train bundled-model`: collects and mixes its texts and creates the Llama (docs/bundled-model.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.cli.main import main
from pipeline.datasets.files import find_files
from pipeline.errors import UserError
from pipeline.llm.embedded.bundled import training
from pipeline.text import counted
from pipeline.training.mixture import Part, write_mixture

_HOPS = (1, 2, 3)
_ALL = {"": 1.0}

_KNOWN_PATHS = {1: {"": 0.5}, 2: _ALL, 3: {"": 0.78}}
_SHORTEST_PATHS = {1: {"": 0.34}, 2: {"": 0.5}, 3: _ALL}
"""Shares of ArG's texts, by hops. Three-hop texts contain one- and two-hop steps, so fewer short texts are needed."""

_OFFERED = "collect.retrieve_k=[1,2,3,5]"
"""Relations offered at a hop. Nodes of MetaQA have few relations, so the model must have seen small numbers."""

_WALK_LAYOUT = [f"collect.facts={training().facts}", "collect.answers=shown"]
"""The layout that the weights in the package read. A model without knowledge cannot learn answers that no text has."""
_CALL_LAYOUT = [f"method.facts={training().facts}"]

_WORLDS = (101, 102)
"""Seeds of the synthetic worlds of ArG's texts; the default seed, used for evaluation, is not among them."""
_WORLD_SIZES = (3000, 20000)


class _CallSource(NamedTuple):
    """Runs of one method whose calls are trained on."""

    name: str
    method: str
    overrides: list[str]
    shares: Mapping[str, float]
    """Prefix of role → share of its calls."""
    hops: tuple[int, ...] = _HOPS
    """Numbers of hops of the MetaQA questions."""
    worlds: tuple[int, ...] = (2024,)
    """Seeds of the synthetic worlds."""
    questions: int | None = None
    """Maximum per dataset; None takes all."""


_FEW = 700
"""Questions per dataset for the methods other than ArG, whose calls are learned sooner."""

_CALL_SOURCES = (
    _CallSource("searches", "arg", ["method.depth=3", *_CALL_LAYOUT], _ALL, worlds=tuple(range(11, 17))),
    _CallSource(
        "short-searches",
        "arg",
        ["method.depth=3", "method.max_tails_shown=1", *_CALL_LAYOUT],
        _ALL,
        hops=(1,),
        worlds=tuple(range(21, 25)),
    ),
    _CallSource("srp", "srp", ["method.num_references=0"], {"": 0.4, "srp.judge": 0.12}, questions=_FEW),
    _CallSource("parog", "parog", ["method.planner=prompted"], {"": 0.2}, questions=_FEW),
    _CallSource("r3", "r3", [], {"r3.thought": 0.08, "r3.action": 0.15, "r3.verify": 0.3}, questions=_FEW),
)
"""All calls of ArG are taken, because prefix packing makes all calls of a question hardly longer than one. One-hop
questions are used twice, to have enough names. PARoG's planner is prompted: a fine-tuned one gets only the question, as
ArG's generator does, and one model could not distinguish the two."""


def stages(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the configuration of each training stage; a stage starts from the output of the previous one."""
    trainings: list[dict[str, Any]] = []
    model = settings["model"]
    for name, stage in settings["parts"].items():
        paths = {"model": model, "texts": stage["texts"], "storage": f"{settings['storage']}/{name}"}
        model = stage["output"]
        trainings.append({**settings, **paths, "output": model, "recipe": settings["recipe"] | stage["recipe"]})
    return trainings


def prepare(settings: Mapping[str, Any]) -> None:
    """Create the training texts and the untrained Llama if they are missing. Raises UserError."""
    where = Path(settings["metaqa"]), Path(settings["material"]), settings["limit"]
    walks, calls = (Path(settings["parts"][name]["texts"]) for name in ("walks", "calls"))
    collections = {walks: _walks(*where), calls: _calls(*where)}
    for texts, collected in collections.items():
        if not texts.exists():
            counts = write_mixture(list(collected), texts)
            of_roles = ", ".join(f"{number:,} {role}" for role, number in counts.items())
            print(f"{texts}: {counted(counts.total(), 'text')} ({of_roles})")
    if not Path(settings["model"]).exists():
        shape = [f"shape.{key}={value}" for key, value in settings["shape"].items() if key != "_target_"]
        words = [f"texts=[{walks},{calls}]", f"output={settings['model']}", f"seed={settings['recipe']['seed']}"]
        _succeed(main(["init-model", *words, *shape]))


class _Collection(NamedTuple):
    """A file of texts, and the overrides of the command that creates it."""

    name: str
    overrides: list[str]
    shares: Mapping[str, float]


def _walks(metaqa: Path, folder: Path, limit: int | None) -> Iterator[Part]:
    """Collect ArG's texts and yield them as parts of a mixture."""
    for collection in (*_metaqa_walks(metaqa, limit), *_synthetic_walks(limit)):
        output = folder / f"{collection.name}.jsonl"
        if not output.exists():
            overrides = [
                *collection.overrides,
                *_WALK_LAYOUT,
                f"output={output}",
                f"run.dir={folder}/runs/{collection.name}",
            ]
            _succeed(main(["collect", "arg", *overrides]))
        yield Part(output, collection.shares)


def _metaqa_walks(metaqa: Path, limit: int | None) -> Iterator[_Collection]:
    for paths, shares, most in (("known", _KNOWN_PATHS, None), ("shortest", _SHORTEST_PATHS, 3000)):
        for hops in _HOPS:
            paths_override = f"collect.paths={paths}"
            overrides = [*_dev(metaqa, hops), paths_override, _OFFERED, _held_out(metaqa), _at_most(most, limit)]
            yield _Collection(f"walks-{paths}-{hops}", overrides, shares[hops])


def _synthetic_walks(limit: int | None) -> Iterator[_Collection]:
    for seed in _WORLDS:
        for triples in _WORLD_SIZES:
            world = ["dataset=synthetic", f"dataset.seed={seed}", f"dataset.triples={triples}"]
            train = [*world, "dataset.split=train", "collect.paths=known", _at_most(1000, limit)]
            yield _Collection(f"walks-sample-{seed}-{triples}", train, _ALL)
            dev = [*world, "dataset.split=dev", "collect.paths=shortest", _at_most(500, limit)]
            yield _Collection(f"walks-sample-short-{seed}-{triples}", dev, _ALL)


def _calls(metaqa: Path, folder: Path, limit: int | None) -> Iterator[Part]:
    """Collect the calls of each method, in the prompt style that the model will be sent, and yield them as parts."""
    for source in _CALL_SOURCES:
        for dataset, overrides, held_out in _datasets(source, metaqa):
            name = f"calls-{source.name}-{dataset}"
            run, output = folder / "runs" / name, folder / f"{name}.jsonl"
            if not output.exists():
                configuration = [
                    f"method={source.method}",
                    *source.overrides,
                    *overrides,
                    _at_most(source.questions, limit),
                ]
                _succeed(
                    main(["evaluate", *configuration, "llm=oracle", "llm.prompt_style=inputs_only", f"run.dir={run}"])
                )
                _succeed(
                    main(
                        [
                            "collect",
                            "calls",
                            str(run),
                            *held_out,
                            "collect.merge_continuations=true",
                            f"output={output}",
                        ]
                    )
                )
            yield Part(output, source.shares)


def _datasets(source: _CallSource, metaqa: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the datasets of a source: name, overrides, and the override that names held-out questions."""
    for hops in source.hops:
        yield f"metaqa-{hops}", _dev(metaqa, hops), [_held_out(metaqa)]
    for seed in source.worlds:
        yield f"sample-{seed}", ["dataset=synthetic", "dataset.split=train", f"dataset.seed={seed}"], []


def _at_most(questions: int | None, limit: int | None) -> str:
    fewest = min((number for number in (questions, limit) if number is not None), default="null")
    return f"run.limit={fewest}"


def _dev(metaqa: Path, hops: int) -> list[str]:
    return ["dataset=metaqa", f"dataset.path={metaqa}", f"dataset.hops={hops}", "dataset.split=dev"]


def _held_out(metaqa: Path) -> str:
    """Hold out the test questions of all hops, because a few dev questions are also test questions."""
    patterns = [(f"{hops}-hop/qa_test.txt", f"{hops}-hop/vanilla/qa_test.txt") for hops in _HOPS]
    files = [
        file
        for pattern in patterns
        for file in find_files(metaqa, pattern, what="MetaQA test questions, to be held out,")
    ]
    return f"material.held_out=[{','.join(map(str, files))}]"


def _succeed(code: int) -> None:
    if code:
        raise UserError("the training texts could not be collected; see the error above")
