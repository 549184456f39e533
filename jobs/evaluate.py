"""`kgqa evaluate`: one configuration, run, scored and printed."""

from __future__ import annotations

import sys

import yaml
from rich.console import Console

from jobs.cli import guard
from jobs.common import help_text, report, wants_help
from pipeline import config
from pipeline.engine.run import Point, execute, run_dir
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import Place, place, read_whole


def main(argv: list[str]) -> int:
    """Run `argv`, which is Hydra overrides or the `run.yaml` of an earlier run, to be begun again or resumed."""
    if wants_help(argv):
        print(help_text("kgqa evaluate [group=choice] [key=value] … | RUN/run.yaml", argv))
        return 0
    points = points_of(argv)
    summaries = execute(points, Console(stderr=True))
    report(RunFolder(run_dir(points)), summaries)
    return 0


def points_of(argv: list[str]) -> list[Point]:
    """The points that the words of a command describe. Raises UserError."""
    for saved in (place(word) / "run.yaml" for word in argv if "=" not in word):
        if saved.is_file():
            raise UserError(f"{saved.parent} is a run folder: name its file, as in kgqa evaluate {saved}")
    files = [word for word in argv if word.endswith(".yaml") and "=" not in word]
    if not files:
        return [Point(tuple(argv), config.compose(argv))]
    if len(argv) > 1:
        raise UserError(f"{files[0]} holds the whole configuration: give no other words with it")
    return _saved_points(place(files[0]))


def _saved_points(path: Place) -> list[Point]:
    try:
        first, *others = yaml.safe_load(read_whole(path))["points"]
        points = [Point(tuple(point["overrides"]), point["config"]) for point in (first, *others)]
        for point in points:
            point.config["run"]["dir"] = str(path.parent)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        raise UserError(f"{path} is not the run.yaml of a run") from None
    return points


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
