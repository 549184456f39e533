"""The driver of a run: prepares the folder, refuses drift, feeds shards to an executor, and writes the summary."""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from pipeline import config
from pipeline.engine.halving import Halving
from pipeline.engine.local import run_local
from pipeline.engine.logs import console_of, json_lines
from pipeline.engine.rejections import Rejections
from pipeline.engine.services import services
from pipeline.engine.shard import Barrier, Part, Shard, rows_left, shards
from pipeline.engine.summary import TIMES, Ended, summarise
from pipeline.engine.watch import Watch
from pipeline.engine.worker import Served
from pipeline.errors import UserError
from pipeline.evaluation.summary import PointSummary, own_words
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import Place, place
from pipeline.traces.reader import failed_shards

_OF_THE_RUN = ("run.dir", "run.reuse", "run.retry_failed", "run.halving", "dataset.strict", "engine", "evaluation")
"""Keys and sections of which a run has one value, whatever its points are."""
_PACKAGES = ("kgqa-pipeline", "hydra-core", "polars", "pyarrow", "pyoxigraph", "ray")


@dataclass(frozen=True)
class Point:
    """One configuration of a run."""

    overrides: tuple[str, ...]
    """As the user gave them."""
    config: Mapping[str, Any]
    """Resolved."""


def compose_points(of_points: Iterable[Sequence[str]], console: Console) -> list[Point]:
    """The points that these overrides describe. Raises UserError naming what is wrong with one."""
    points: list[Point] = []
    with console.status("") as status:  # of a large sweep this takes a while: about a tenth of a second each
        for overrides in of_points:
            points.append(Point(tuple(overrides), config.compose(overrides)))
            status.update(f"composing the points: {len(points):,}")
    return points


def execute(points: Sequence[Point], console: Console) -> list[PointSummary]:
    """Run the points to their end, resuming what is there, and summarise them.

    Raises UserError for a wrong value, and when the folder holds a run of another configuration.
    """
    with console.status("checking the points"):
        for resolved in {config.canonical(point.config): point.config for point in points}.values():
            config.check(resolved)
    _check_common(points)
    folder = RunFolder(run_dir(points))
    saved = folder.read_run()
    if saved is not None:
        _refuse_drift(folder, saved, points)
    elif folder.finished():
        raise UserError(f"{folder.path} holds traces but no run.yaml that says what of: name another run.dir")
    folder.create()
    engine = points[0].config["engine"]
    console = console_of(engine, console)
    with folder.held(), json_lines(engine, run=folder.path.name, worker="driver"):
        console.print(f"run folder: {folder.path}", markup=False, soft_wrap=True)
        ended = asyncio.run(_execute(points, folder, saved, console))
        return summarise(folder, ended)


def run_dir(points: Sequence[Point]) -> Place:
    """`run.dir`, or a name of what the points compute, so that the same command finds the same folder."""
    configs = [point.config for point in points]
    if configs[0]["run"]["dir"]:
        return place(configs[0]["run"]["dir"]).absolute()
    choices = [dict.fromkeys(each["choices"][group] for each in configs) for group in ("dataset", "method", "llm")]
    return Path.cwd() / "runs" / "-".join([*map("+".join, choices), config.digest(*configs)])


async def _execute(
    points: Sequence[Point], folder: RunFolder, saved: Mapping[str, Any] | None, console: Console
) -> Ended:
    resolved = points[0].config
    rejections = Rejections(folder.rejected, strict=resolved["dataset"]["strict"])
    finished = folder.finished() - (failed_shards(folder) if resolved["run"]["retry_failed"] else set())
    parts, size = _parts(points), resolved["engine"]["shard_size"]
    began = opened = ended = time.time()

    def on_served(served: Sequence[Served]) -> None:
        """Called once per worker."""
        nonlocal opened, saved
        if saved is None:
            saved = _describe(points, served, began)
            folder.write_run(saved)
        _refuse_other_service(folder, saved, served)
        opened = time.time()

    watch = Watch(
        console, total=rows_left(parts, size=size, finished=finished), on_served=on_served, names=_names(points)
    )
    first_drop = resolved["run"]["halving"]
    slicing = Halving(folder, first_drop, watch.on_drop).shards if first_drop else shards
    owed = _Owed(slicing(parts, rejections.add, size=size), finished)
    with rejections:
        first = next(owed, None)
        if not owed.any:
            raise UserError("the dataset has no question to answer: see what its keys select, and rejected.jsonl")
        if first is None:
            console.print("every shard is finished already: nothing to run")
        else:
            async with services([point.config for point in points], folder.path, console) as placed:
                with watch:
                    await _executor(resolved["engine"]["name"])(placed, folder.path, chain([first], owed), watch)
                ended = time.time()
    if first is None and (earlier := folder.read_summary()):  # what it took is what it took then
        return Ended(owed.of_points(len(points)), rejections.count, **{name: earlier[name] for name in TIMES})
    return Ended(
        owed.of_points(len(points)),
        rejections.count,
        wall_s=ended - began,
        opening_s=opened - began,
        loop_lag_s=watch.sum.loop_lag_s,
    )


class _Owed(Iterator[Shard | Barrier]):
    """The shards that are not finished yet, and the barriers that have one before them; counts the questions of all."""

    def __init__(self, all_shards: Iterator[Shard | Barrier], finished: Collection[int]) -> None:
        self._shards = all_shards
        self._finished = finished
        self._handed_out = False
        self._questions: Counter[int] = Counter()

    @property
    def any(self) -> bool:
        """Whether there has been a question so far."""
        return bool(self._questions)

    def of_points(self, points: int) -> tuple[int, ...]:
        """The questions that each point asks."""
        return tuple(self._questions[point] for point in range(points))

    def __next__(self) -> Shard | Barrier:
        for shard in self._shards:
            if isinstance(shard, Barrier):
                if self._handed_out:
                    return shard
                continue
            self._questions.update(dict.fromkeys(shard.points, len(shard.examples)))
            if shard.index not in self._finished:
                self._handed_out = True
                return shard
        raise StopIteration


def _names(points: Sequence[Point]) -> list[str]:
    """What tells each point from the others, in words; nothing for a single one."""
    if len(points) == 1:
        return []
    own = map(" ".join, own_words([point.overrides for point in points]))
    return [words or point.config["choices"]["method"] for words, point in zip(own, points, strict=True)]


def _parts(points: Sequence[Point]) -> list[Part]:
    """The points in groups that ask the same questions, in the order of the points."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for index, point in enumerate(points):
        groups[config.canonical([point.config["dataset"], point.config["run"]["limit"]])].append(index)
    firsts = {indices[0]: tuple(indices) for indices in groups.values()}
    return [
        Part(indices, config.build("dataset", points[first].config), points[first].config["run"]["limit"])
        for first, indices in firsts.items()
    ]


def _executor(name: str) -> Any:
    if name == "local":
        return run_local
    if name == "ray":
        from pipeline.engine.ray import run_ray  # Ray takes a second to import

        return run_ray
    raise UserError(f"engine.name={name} is unknown: local or ray")


def _check_common(points: Sequence[Point]) -> None:
    """Raise UserError where points differ in what holds for the run as a whole."""
    for key, values in _differing(points).items():
        if key.startswith(_OF_THE_RUN):
            listed = ", ".join(map(str, values))
            raise UserError(f"{key} is one for the whole run, and the points of this one have {listed}: give it once")
    run = points[0].config["run"]
    if run["halving"] and run["retry_failed"]:
        raise UserError("run.retry_failed=true does not go with run.halving, whose decisions are made: begin a new run")


def _differing(points: Sequence[Point]) -> dict[str, list[Any]]:
    """The keys that not all points give the same value, with the values that there are."""
    flat = [dict(config.flatten(point.config)) for point in points]
    values = {key: list({config.canonical(each.get(key)): each.get(key) for each in flat}.values()) for key in flat[0]}
    return {key: found for key, found in values.items() if len(found) > 1}


def _describe(points: Sequence[Point], served: Sequence[Served], began: float) -> dict[str, Any]:
    return {
        "points": [{"overrides": list(point.overrides), "config": dict(point.config)} for point in points],
        "served": [asdict(one) for one in served],
        "seed": points[0].config["run"]["seed"],
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(began)),
        "versions": {name: _version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        "git_commit": _git_commit(),
    }


def _refuse_drift(folder: RunFolder, saved: Mapping[str, Any], points: Sequence[Point]) -> None:
    before = [point["config"] for point in saved["points"]]
    if len(before) != len(points):
        raise UserError(f"{folder.path} holds a run of {len(before)} points, not {len(points)}: name another run.dir")
    drifted = [line for old, new in zip(before, points, strict=True) for line in config.drift(old, new.config)]
    if drifted:
        raise UserError(f"{folder.path} holds another run; name another run.dir. What differs: {'; '.join(drifted)}")


def _refuse_other_service(folder: RunFolder, saved: Mapping[str, Any] | None, served: Sequence[Served]) -> None:
    """A resumed run must meet the model and the graph that it began with."""
    if saved is None:
        return
    for before, now in zip(saved["served"], served, strict=True):
        for what, value in asdict(now).items():
            if before.get(what) != value:
                raise UserError(f"{folder.path} was begun with the {what} {before.get(what)}, but now it is {value}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of the checkout that this package runs from; None for an installed package."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None
