"""`kgqa sweep`: a Hydra multirun whose points are evaluated together, question by question."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from jobs.cli import guard
from jobs.common import help_text, print_remarks, remark, wants_help
from pipeline import config
from pipeline.engine.sweep import Sweep
from pipeline.errors import UserError
from pipeline.evaluation.summary import PointSummary, own_words
from pipeline.evaluation.table import sweep_table

USAGE = "kgqa sweep [group=choice,choice] [key=value,value] [hydra/sweeper=NAME] … | POINTS.txt [key=value] …"


def main(argv: list[str]) -> int:
    """Run every point that `argv` describes: lists of values, ranges, a sweeper's keys, or a file of points."""
    if wants_help(argv):
        print(help_text(USAGE, [word for word in argv if "," not in word]))
        return 0
    sweep = Sweep(Console(stderr=True))
    run_points(argv, sweep)
    _report(sweep)
    return 0


def run_points(argv: Sequence[str], sweep: Sweep) -> None:
    """Hand the points that the words describe to `sweep`, in one batch or several. Raises UserError."""
    files = [word for word in argv if "=" not in word]
    if len(files) > 1:
        raise UserError(f"{' and '.join(files)}: name one file of points, one point per line")
    if files:
        common = [word for word in argv if "=" in word]
        sweep.run([[*common, *words] for words in _read_points(Path(files[0]))])
    else:
        _multirun(argv, sweep)


def _multirun(argv: Sequence[str], sweep: Sweep) -> None:
    """Let Hydra's sweeper choose the points, and our launcher run them."""
    quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none"]
    with (
        tempfile.TemporaryDirectory() as notes,  # the basic sweeper wants to write down what run.yaml says better
        hydra.initialize_config_dir(str(config.conf_dir()), version_base="1.3"),
    ):
        words = ["hydra/launcher=fused", *quiet, f"hydra.sweep.dir={notes}", *_seeded(argv)]
        running = GlobalHydra.instance().hydra
        assert running is not None
        try:
            running.multirun("config", sweep, words, with_log_configuration=False)
        except (HydraException, OmegaConfBaseException) as error:
            raise _mistake(argv) or UserError(str(error).splitlines()[0]) from None


def _seeded(argv: Sequence[str]) -> list[str]:
    """A search that is begun again has to ask for the same points, or it could not be resumed."""
    searches = "hydra/sweeper=optuna" in argv and not any("hydra.sweeper.sampler" in word for word in argv)
    own = any(word.startswith("hydra/sweeper/sampler=") for word in argv)
    return [*(["hydra.sweeper.sampler.seed=0"] if searches and not own else []), *argv]


def _mistake(argv: Sequence[str]) -> UserError | None:
    """What is wrong with a word by itself, which `config` says better than Hydra; None when it is not one word."""
    words = [word for word in argv if not word.startswith("hydra.")]
    lists = {word: word.partition("=")[2].split(",") for word in words if not set("([{'") & set(word)}
    firsts = {word: f"{word.partition('=')[0]}={values[0]}" for word, values in lists.items()}
    for word, values in lists.items():
        others = [firsts.get(other, other) for other in words if other != word and "(" not in other]
        for value in values:
            try:
                config.compose([*others, f"{word.partition('=')[0]}={value}"])
            except UserError as mistake:
                return mistake
    return None


def _read_points(path: Path) -> Iterator[list[str]]:
    """The points of a file: one per line, written as on the command line; what follows a # is a remark."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as a file of points: {error}") from None
    try:
        points = [words for line in lines if (words := shlex.split(line, comments=True))]
    except ValueError as error:
        raise UserError(f"{path} is no file of points, which are written as on the command line: {error}") from None
    if not points:
        raise UserError(f"{path} holds no point: write one per line, as on the command line")
    return iter(points)


def _leader(points: Sequence[PointSummary]) -> str:
    """The point with the highest Hits@1, by what tells it from the others."""
    own = own_words([point.overrides for point in points])
    hits = [point.scores["hits_at_1"].mean if "hits_at_1" in point.scores else -1 for point in points]
    best = hits.index(max(hits))
    words = [word for word in own[best] if not word.startswith("run.")]
    return f"highest Hits@1: point {points[best].point}, {points[best].method} {' '.join(words)}"


def _report(sweep: Sweep) -> None:
    console = Console()
    points = [summary for _, summaries in sweep.batches for summary in summaries]
    console.print(sweep_table(points))
    for folder, summaries in sweep.batches:
        remark(folder, summaries)
    saved = [folder.read_summary() or {} for folder, _ in sweep.batches]
    logical, physical = (sum(each[name] for each in saved) for name in ("logical_llm_calls", "physical_llm_calls"))
    if len(points) > 1:
        print_remarks([_leader(points)], console)
    print_remarks([f"{len(points)} points: {logical:,} calls if each had run alone, {physical:,} made"], console)


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
