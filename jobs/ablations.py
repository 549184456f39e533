"""`kgqa ablations`: a method beside itself without each of its parts, on the same questions with the same draws."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from jobs.cli import guard
from jobs.common import help_text, print_remarks, remark, wants_help
from pipeline import config
from pipeline.analysis.ablations import effect_table, effects
from pipeline.engine.run import compose_points, execute, run_dir
from pipeline.errors import UserError
from pipeline.evaluation.ablations import ABLATIONS
from pipeline.traces.folder import RunFolder


def main(argv: list[str]) -> int:
    """Run every ablation of `method=` (methods.md §12) as one run, and print what each does beside the published."""
    if wants_help(argv):
        print(help_text("kgqa ablations method=srp|arg|parog|r3 [group=choice] [key=value] …", argv))
        return 0
    if chosen := [word for word in argv if word.startswith("experiment=")]:
        raise UserError(f"{chosen[0]} has no place here: the ablations are experiments themselves; name a method")
    method = config.compose(argv)["choices"]["method"]
    if method not in ABLATIONS:
        raise UserError(f"method={method} has no ablations. Those that have: {', '.join(ABLATIONS)}")
    ablations = ABLATIONS[method]
    presets = list(dict.fromkeys(preset for each in ablations for preset in (each.base, each.preset)))
    progress = Console(stderr=True)
    whole = _keys(method)
    points = compose_points((_words(argv, preset, whole) for preset in presets), progress)
    summaries = execute(points, progress)
    folder = RunFolder(run_dir(points))
    numbers = {preset: number for number, preset in enumerate(presets)}
    found = effects(folder, numbers, ablations, config.build("evaluation", points[0].config))
    Console().print(effect_table(found, summaries, numbers))
    remark(folder, summaries)
    if method == "srp" and points[0].config["retrieval"].get("reference_base") is None:
        line = "there are no references to take away: name a file made by kgqa references in retrieval.reference_base"
        print_remarks([line], Console())
    return 0


def _words(argv: Sequence[str], preset: str, whole: dict[str, Any]) -> list[str]:
    """The command line of a preset: without the words that would take back what it changes of the whole method."""
    changed = _keys(preset)
    keys = {key for key in whole | changed if whole.get(key) != changed.get(key)}
    return [*(word for word in argv if word.partition("=")[0] not in keys), f"experiment={preset}"]


def _keys(preset: str) -> dict[str, Any]:
    return dict(config.flatten(config.compose([f"experiment={preset}"])))


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
