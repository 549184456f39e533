"""`kgqa ablations`: compare a method with its variants without one part each, on the same questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline import config
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.cli.run_output import exit_code, run_figures, run_notes
from pipeline.console import Console
from pipeline.engine.configuration import compose_configurations, run_dir
from pipeline.engine.run import execute
from pipeline.errors import UserError
from pipeline.papers.ablation_effects import Effect, effect_columns, effect_table, measured_effects
from pipeline.papers.ablations import ABLATIONS
from pipeline.traces.folder import RunFolder


def run(arguments: Arguments) -> Output:
    """Run every ablation of `method=` (specification §12) as one run, next to the published effects."""
    if chosen := [word for word in arguments.overrides if word.startswith("experiment=")]:
        raise UserError(f"{chosen[0]} cannot be combined with ablations, which are experiments themselves: remove it")
    method = arguments.compose()["choices"]["method"]
    if method not in ABLATIONS:
        raise UserError(f"method={method} has no ablations. Methods that have: {', '.join(ABLATIONS)}")
    ablations = ABLATIONS[method]
    presets = list(dict.fromkeys(preset for each in ablations for preset in (each.base, each.preset)))
    progress = Console(stderr=True)
    whole = _keys(method)
    configurations = compose_configurations(
        [_overrides(arguments.overrides, preset, whole) for preset in presets], progress
    )
    summaries = execute(configurations, progress)
    folder = RunFolder(run_dir(configurations))
    numbers = {preset: number for number, preset in enumerate(presets)}
    found = measured_effects(folder, numbers, ablations, config.build("evaluation", configurations[0].config))
    notes = run_notes(folder, summaries)
    if method == "srp" and configurations[0].config["retrieval"].get("reference_base") is None:
        notes.append(
            "SRP ran without references in every row: set retrieval.reference_base to a file of kgqa build-references"
        )
    figures = {**run_figures(folder, summaries), "effects": [_effect_figures(effect, numbers) for effect in found]}
    return Output(
        figures,
        [effect_table(found, summaries, numbers)],
        notes,
        exit_code=exit_code(folder),
        full_tables=[effect_columns(found, summaries, numbers)],
    )


def _effect_figures(effect: Effect, numbers: Mapping[str, int]) -> dict[str, Any]:
    """Return one row of the table; `base_point` and `point` are numbers of `points`."""
    ablation, difference = effect.ablation, effect.difference
    return {
        "ablation": ablation.part,
        "preset": ablation.preset,
        "base_preset": ablation.base,
        "point": numbers[ablation.preset],
        "base_point": numbers[ablation.base],
        "score_name": effect.score,
        "questions": effect.questions,
        "base_score": effect.base,
        "score": effect.other,
        "difference": difference.mean,
        "interval": [difference.low, difference.high],
        "exact_p": effect.exact_p,
        "published": list(effect.published),
        "verdict": effect.verdict,
    }


def _overrides(given: Sequence[str], preset: str, whole: Mapping[str, Any]) -> list[str]:
    """Return the overrides of a preset, without those given that would undo what it changes of the whole method."""
    changed = _keys(preset)
    keys = {key for key in {*whole, *changed} if whole.get(key) != changed.get(key)}
    return [*(word for word in given if word.partition("=")[0] not in keys), f"experiment={preset}"]


def _keys(preset: str) -> dict[str, Any]:
    return dict(config.flatten(config.compose([f"experiment={preset}"])))
