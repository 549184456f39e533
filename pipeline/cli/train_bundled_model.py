"""`kgqa train bundled-model`: train the bundled model again from nothing (docs/bundled-model.md).

It collects the texts of each part of the training with the oracle, trains the parts, and then trains the model in
rounds on what it should have written in its own runs. Every step leaves a file or a folder, so the same command goes on
after a stop.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from pipeline import config
from pipeline.cli.arguments import Arguments
from pipeline.cli.main import main
from pipeline.cli.output import Output
from pipeline.cli.train import train_model
from pipeline.cli.train_improve import improve, score_table
from pipeline.console import Console
from pipeline.datasets.files import find_files
from pipeline.datasets.triples import read_triples
from pipeline.errors import UserError
from pipeline.training.bundled_sources import DATA, IMPROVED, METAQA, METHODS, OWN_WORLDS, SLICE, SOURCES, Source, world
from pipeline.training.made_questions import make_questions
from pipeline.training.mixture import Part, write_mixture
from pipeline.training.rows import write_rows

_HOPS = (1, 2, 3)
_ALL = {"": 1.0}

_KNOWN_PATHS = {1: {"": 0.5}, 2: _ALL, 3: {"": 0.78}}
_SHORTEST_PATHS = {1: {"": 0.34}, 2: {"": 0.5}, 3: _ALL}
"""Shares of ArG's texts, by hops. Three-hop texts contain one- and two-hop steps, so fewer short texts are needed."""

_OFFERED = "collect.retrieve_k=[1,2,3,5]"
"""Relations offered at a hop. Nodes of MetaQA have few relations, so the model must have seen small numbers."""

_SHOWN_ANSWERS = "collect.answers=shown"
"""A model without knowledge cannot learn answers that no text has."""

_WORLDS = (101, 102)
"""Seeds of the synthetic worlds of ArG's texts; the default seed, used for evaluation, is not among them."""
_WORLD_SIZES = (3000, 20000)
_MADE_QUESTIONS = 20_000
_AS_THEY_ARE = ("calls", "collect.merge_continuations=true")
_CORRECTED = ("corrections", "collect.right_share=1")


_OWN_RUNS = ("llm=embedded", "llm.prompt_style=inputs_only", "llm.max_new_tokens=400", "budget.max_llm_calls=150")
"""Limits for a model that repeats itself: what it writes then teaches nothing more."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The keys of `conf/train_bundled_model.yaml` that are in no section."""

    output: str
    model: str
    storage: str
    material: str
    checkpoints: str
    metaqa: str
    freebase: str | None
    limit: PositiveInt | None


def run(arguments: Arguments) -> Output:
    """Collect the texts, train part by part, and improve the model in rounds, or go on from what is there."""
    settings = arguments.compose()
    output = Path(config.build_own(Plan, settings).output)
    if output.exists():
        raise UserError(f"{output} already exists: give another output=")
    parts = stages(settings)
    for name, part in parts.items():
        if not Path(part["output"]).exists():
            prepare(settings, name)
            _show_tokens(part)
            train_model(part)
    rounds = improvement(settings, list(parts.values())[-1])
    _write_own_runs(settings, Path(rounds["configurations"]))
    model, scores = improve(rounds)
    shutil.copytree(model, output)
    return Output({"output": str(output), "curve": scores}, [score_table(scores)], notes=[f"model: {output}"])


def stages(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the configuration of each part of the training; a part starts from the output of the previous one."""
    trainings: dict[str, dict[str, Any]] = {}
    model = settings["model"]
    for name, part in settings["parts"].items():
        texts = [f"{settings['material']}/{each}.jsonl" for each in _collections(part)]
        paths = {"model": model, "texts": texts, "storage": f"{settings['storage']}/{name}"}
        model = part["output"]
        trainings[name] = {**settings, **paths, "output": model, "recipe": settings["recipe"] | part["recipe"]}
    return trainings


def prepare(settings: Mapping[str, Any], name: str) -> None:
    """Create the texts of a part if they are missing, and for the first part the untrained Llama. Raises UserError.

    The Llama's tokenizer is trained on walks and on the first draw of calls.
    """
    for collection, draw in _collections(settings["parts"][name]).items():
        _collect(settings, collection, draw)
    if name == next(iter(settings["parts"])) and not Path(settings["model"]).exists():
        firsts = [next(iter(_collections(part).items())) for part in settings["parts"].values()]
        files = ",".join(str(_collect(settings, *first)) for first in firsts)
        shape = [f"shape.{key}={value}" for key, value in settings["shape"].items() if key != "_target_"]
        seed = f"seed={settings['recipe']['seed']}"
        _succeed(main(["init-model", f"texts=[{files}]", f"output={settings['model']}", seed, *shape]))


def improvement(settings: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of the rounds that improve the model of the last part."""
    folder = Path(settings["checkpoints"], "rounds")
    own, limit = settings["improvement"], settings["limit"]
    few = {name: own[name] if limit is None else min(own[name], limit) for name in ("questions", "check")}
    paths = {"configurations": str(folder / "runs.txt"), "output": str(folder)}
    paths |= {"model": part["output"], "texts": part["texts"]}
    held_out = _test_questions(Path(settings["metaqa"]), settings["freebase"])
    recipe = settings["recipe"] | own["recipe"]
    runs = {"run": {"trust": False}}  # they name classes of the project alone
    return {**settings, **own, **few, **paths, **runs, "held_out": held_out, "recipe": recipe}


def _write_own_runs(settings: Mapping[str, Any], file: Path) -> None:
    """Write the configurations in which the model is run in each round."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(shlex.join(words) for words in _own_runs(settings)) + "\n", encoding="utf-8")


def _own_runs(settings: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the configurations in which the model is run."""
    places = {name: settings[name] for name in ("metaqa", "freebase", "material")}
    names = (*METAQA, *(SLICE if settings["freebase"] else ()))
    data = [*(DATA[name] for name in names), *(world(seed)[1] for seed in OWN_WORLDS)]
    for method in IMPROVED:
        for overrides in data:
            yield [*METHODS[method], *(word.format(**places) for word in overrides), *_OWN_RUNS]


def _show_tokens(part: Mapping[str, Any]) -> None:
    """Print what the texts of a part cost, by role."""
    from pipeline.training.sft.model import open_tokenizer
    from pipeline.training.token_counts import count_tokens, token_table

    files = [Path(file) for file in part["texts"]]
    counts = count_tokens(files, open_tokenizer(part["model"], config.build("recipe", part)))
    Console(stderr=True).print(token_table(counts, ", ".join(file.name for file in files)))


def _collections(part: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the names of the texts of a part, each with its draw, or None for walks."""
    return {f"calls-{draw}": draw for draw in part["draws"]} or {"walks": None}


def _collect(settings: Mapping[str, Any], name: str, draw: int | None) -> Path:
    """Collect texts, unless they are there, and return their file."""
    file = Path(settings["material"], f"{name}.jsonl")
    if not file.exists():
        write_mixture(list(_walks(settings) if draw is None else _calls(settings, draw)), file)
    return file


class _Collection(NamedTuple):
    """A file of texts, and the overrides of the command that creates it."""

    name: str
    overrides: list[str]
    shares: Mapping[str, float]


def _walks(settings: Mapping[str, Any]) -> Iterator[Part]:
    """Collect ArG's texts and yield them as parts of a mixture."""
    metaqa, folder, limit = Path(settings["metaqa"]), Path(settings["material"]), settings["limit"]
    for collection in (*_metaqa_walks(metaqa, limit), *_synthetic_walks(limit)):
        output = folder / f"{collection.name}.jsonl"
        if not output.exists():
            overrides = [
                *collection.overrides,
                _SHOWN_ANSWERS,
                f"output={output}",
                f"run.dir={folder}/runs/{collection.name}",
            ]
            _succeed(main(["collect", "arg", *overrides]))
        yield Part(output, collection.shares)


def _metaqa_walks(metaqa: Path, limit: int | None) -> Iterator[_Collection]:
    for paths, shares, most in (("known", _KNOWN_PATHS, 6000), ("shortest", _SHORTEST_PATHS, 3000)):
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


def _calls(settings: Mapping[str, Any], draw: int) -> Iterator[Part]:
    """Collect the calls of each method, in the prompt style that the model will be sent, and yield them as parts."""
    folder = Path(settings["material"])
    held_out = _held_out(Path(settings["metaqa"]), settings["freebase"])
    for source in SOURCES:
        for data, overrides, questions in _data(settings, source, draw):
            name = f"calls-{draw}-{source.method}-{data}"
            run, output = folder / "runs" / name, folder / f"{name}.jsonl"
            if not output.exists():
                few = questions if settings["limit"] is None else min(questions, settings["limit"])
                drawn = [f"run.sample={few}", f"run.sample_seed={draw}", f"run.dir={run}"]
                oracle = ["llm=oracle", f"llm.error_rate={source.error_rate}", "llm.prompt_style=inputs_only"]
                _succeed(main(["evaluate", *overrides, *METHODS[source.method], *oracle, *drawn]))
                kind = _CORRECTED if source.error_rate else _AS_THEY_ARE
                _succeed(main(["collect", *kind, str(run), held_out, f"output={output}"]))
            yield Part(output, source.shares)


def _data(settings: Mapping[str, Any], source: Source, draw: int) -> Iterator[tuple[str, list[str], int]]:
    """Yield the datasets of a source: name, overrides and number of questions."""
    places = {name: settings[name] for name in ("metaqa", "freebase", "material")}
    chosen = {name: (DATA[name], questions) for name, questions in zip(METAQA, source.metaqa, strict=True)}
    if settings["freebase"] is not None:
        _write_made_questions(settings)
        chosen |= {name: (DATA[name], source.slice) for name in SLICE}
    for number in range(source.worlds):
        name, overrides = world(1000 * draw + number)
        chosen[name] = (overrides, source.of_world)
    for name, (overrides, questions) in chosen.items():
        yield name, [word.format(**places) for word in overrides], questions


def _write_made_questions(settings: Mapping[str, Any]) -> None:
    """Write the questions that are made from the facts of the slice of Freebase, unless they are there."""
    file = Path(settings["material"]) / "made-questions.jsonl"
    if not file.exists():
        triples = read_triples(Path(settings["freebase"]) / "triples.tsv.gz")
        write_rows(make_questions(triples, _MADE_QUESTIONS, settings["recipe"]["seed"]), file)


def _at_most(questions: int | None, limit: int | None) -> str:
    fewest = min((number for number in (questions, limit) if number is not None), default="null")
    return f"run.limit={fewest}"


def _dev(metaqa: Path, hops: int) -> list[str]:
    return ["dataset=metaqa", f"dataset.path={metaqa}", f"dataset.hops={hops}", "dataset.split=dev"]


def _held_out(metaqa: Path, freebase: str | None = None) -> str:
    return f"material.held_out=[{','.join(_test_questions(metaqa, freebase))}]"


def _test_questions(metaqa: Path, freebase: str | None) -> list[str]:
    """Hold out MetaQA's test questions of all hops, because a few dev questions are among them, and WebQSP and CWQ."""
    patterns = [(f"{hops}-hop/qa_test.txt", f"{hops}-hop/vanilla/qa_test.txt") for hops in _HOPS]
    files = [
        file
        for pattern in patterns
        for file in find_files(metaqa, pattern, what="MetaQA test questions, to be held out,")
    ]
    of_slice = [f"{freebase}/{name}.test.jsonl.gz" for name in ("webqsp", "cwq")] if freebase else []
    return [*map(str, files), *of_slice]


def _succeed(code: int) -> None:
    if code:
        raise UserError("the training texts could not be collected; see the error above")
