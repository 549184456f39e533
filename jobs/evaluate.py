"""`kgqa evaluate`: one configuration, run, scored and printed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from jobs.cli import guard
from jobs.common import help_text, wants_help
from pipeline import config
from pipeline.engine.run import Point, execute
from pipeline.engine.summary import show
from pipeline.errors import UserError


def main(argv: list[str]) -> int:
    """Run `argv`, which is Hydra overrides or the `run.yaml` of an earlier run, to be begun again or resumed."""
    if wants_help(argv):
        print(help_text("kgqa evaluate [group=choice] [key=value] … | RUN/run.yaml"))
        return 0
    show(execute(_points(argv), Console(stderr=True)), Console())
    return 0


def _points(argv: list[str]) -> list[Point]:
    if len(argv) == 1 and argv[0].endswith(".yaml"):
        return _saved_points(Path(argv[0]))
    return [Point(tuple(argv), config.compose(argv))]


def _saved_points(path: Path) -> list[Point]:
    try:
        saved: dict[str, Any] = yaml.safe_load(path.read_text())
        points = [Point(tuple(point["overrides"]), point["config"]) for point in saved["points"]]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, KeyError, TypeError):
        raise UserError(f"{path} is not the run.yaml of a run") from None
    for point in points:
        point.config["run"]["dir"] = str(path.parent)
    return points


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
