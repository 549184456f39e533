"""`kgqa train improve`: train a model on what it should have written in its own runs, in rounds (docs/training.md).

A round runs the model, lets the oracle say what it should have written at each call, and trains on these calls and on
those of the earlier rounds. Every step leaves a file or a folder, so the same command goes on after a stop.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass
from rich.table import Table
from rich.text import Text

from pipeline import config
from pipeline.cli.arguments import Arguments, Trust
from pipeline.cli.main import main
from pipeline.cli.output import Output
from pipeline.cli.sweep import read_configurations
from pipeline.cli.train import train_model
from pipeline.errors import FAILED_RUN, UserError
from pipeline.evaluation.score_tables import percent, plain_table
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.training.labelled import is_test
from pipeline.training.mixture import Part, write_mixture
from pipeline.training.rows import write_rows

_CURVE = "curve.jsonl"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The keys of `conf/train_improve.yaml` that it does not share with other trainings."""

    model: str
    configurations: str
    output: str
    rounds: NonNegativeInt
    questions: PositiveInt
    check: PositiveInt
    texts: tuple[str, ...]
    texts_share: NonNegativeFloat
    held_out: tuple[str, ...]
    weight: NonNegativeInt
    right_share: NonNegativeFloat
    run: Trust


def run(arguments: Arguments) -> Output:
    """Improve a model in rounds, or go on, and print its scores after each round."""
    settings = arguments.compose()
    model, scores = improve(settings)
    file = Path(settings["output"], _CURVE)
    return Output(
        {"model": str(model), "curve": scores}, [score_table(scores)], notes=[f"model: {model}", f"scores: {file}"]
    )


def improve(settings: Mapping[str, Any]) -> tuple[Path, list[dict[str, Any]]]:
    """Improve a model in rounds, or go on. Returns the folder of the last model, and the scores after each round."""
    plan = config.build_own(Plan, settings)
    output, model = Path(plan.output), Path(plan.model)
    _refuse_test(plan)
    scores = list(_check(plan, 0, model))
    write_rows(scores, output / _CURVE)
    held_out = _write_held_out(output)
    for number in range(1, plan.rounds + 1):
        model = _train(plan, settings, number, model, held_out)
        scores += _check(plan, number, model)
        write_rows(scores, output / _CURVE)
    return model, scores


def _refuse_test(plan: Plan) -> None:
    """Raise UserError if a configuration would be trained on questions of a test split."""
    for words in read_configurations(Path(plan.configurations)) if plan.rounds else ():
        split = str(config.compose(words)["dataset"]["split"])
        if is_test(split):
            raise UserError(
                f"{plan.configurations}: dataset.split={split} is for evaluation, not for training: give another "
                "dataset.split in each line"
            )


def _train(plan: Plan, settings: Mapping[str, Any], number: int, model: Path, held_out: Path) -> Path:
    """Run the model, collect its corrections and train it on them. Returns the folder of the trained model."""
    output = Path(plan.output)
    folder, trained = output / f"round-{number}", output / f"round-{number}" / "model"
    if trained.exists():
        return trained
    if not (folder / "corrections.jsonl").exists():
        _run(plan, folder / "run", model, questions=plan.questions, seed=number)
        files = ",".join(map(str, [held_out, *plan.held_out]))
        selected = [f"material.held_out=[{files}]", f"collect.right_share={plan.right_share}"]
        output_file = f"output={folder}/corrections.jsonl"
        _succeed("collect", "corrections", str(folder / "run"), output_file, *selected, plan.run.word)
    corrections = [output / f"round-{earlier}" / "corrections.jsonl" for earlier in range(1, number + 1)]
    others = [Part(Path(file), {"": plan.texts_share}) for file in plan.texts]
    texts = folder / "texts.jsonl"
    checked = frozenset(held_out.read_text(encoding="utf-8").splitlines())
    write_mixture([*(Part(file, {"": 1.0}) for file in corrections * plan.weight), *others], texts, checked)
    paths = {"model": str(model), "texts": str(texts), "storage": str(folder / "training"), "output": str(trained)}
    train_model({**settings, **paths})
    return trained


def _check(plan: Plan, number: int, model: Path) -> Iterator[dict[str, Any]]:
    """Score a model on the questions that are never trained on; one row for each configuration."""
    folder = Path(plan.output) / f"round-{number}" / "check"
    _run(plan, folder, model, questions=plan.check, seed=0)
    for point in (RunFolder(folder).read_summary() or {})["points"]:
        scores = {name: point[name] for name in ("questions", "hits_at_1", "f1", "unreadable_share")}
        yield {"round": number, "method": point["method"], "dataset": point["dataset"], **scores}


def _run(plan: Plan, folder: Path, model: Path, *, questions: int, seed: int) -> None:
    """Run the configurations with a model on some of their questions, unless that is done."""
    if (RunFolder(folder).read_summary() or {}).get("complete"):
        return
    lines = [shlex.join([*words, f"llm.model={model}"]) for words in read_configurations(Path(plan.configurations))]
    file = folder.parent / f"{folder.name}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sample = (f"run.sample={questions}", f"run.sample_seed={seed}")
    _succeed("sweep", str(file), *sample, f"run.dir={folder}", plan.run.word)


def _write_held_out(output: Path) -> Path:
    """Write the ids of the questions on which the models are scored."""
    file, check = output / "held-out.txt", RunFolder(output / "round-0" / "check")
    ids = {id: None for shard in read_shards(check, ("question_id",)) for id in shard["question_id"]}
    file.write_text("".join(f"{id}\n" for id in ids), encoding="utf-8")
    return file


def _succeed(*words: str) -> None:
    if main(list(words)) not in (0, FAILED_RUN):  # failed questions of an untrained model are no reason to stop
        raise UserError(f"kgqa {' '.join(words[:2])} did not succeed; see the error above")


def score_table(scores: list[dict[str, Any]]) -> Table:
    """Return Hits@1 by configuration and round; configurations are in the order of their file."""
    rounds = {each["round"]: None for each in scores}
    shown = plain_table("strict Hits@1 on questions that were not trained on, by round")
    for name in ("method", "dataset"):
        shown.add_column(name, overflow="fold")
    for number in rounds:
        shown.add_column(str(number), justify="right")
    by_round = ([each for each in scores if each["round"] == number] for number in rounds)
    for of_configuration in zip(*by_round, strict=True):
        names = (Text(of_configuration[0][name]) for name in ("method", "dataset"))
        shown.add_row(*names, *(percent(each["hits_at_1"]) for each in of_configuration))
    return shown
