"""Writes `run.yaml`, which describes a run, and refuses to resume another run than the one that it describes."""

from __future__ import annotations

import importlib.metadata
import platform
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.console import Console
from pipeline.datasets.remote import versions
from pipeline.engine import resume
from pipeline.engine.begun_in import begun_in
from pipeline.engine.components import Backends
from pipeline.engine.configuration import Configuration
from pipeline.engine.rejections import Rejections
from pipeline.engine.retry_advice import begun_by_other
from pipeline.engine.sources import model_sources, project_sources, user_sources
from pipeline.errors import RunStopped, UserError
from pipeline.text import agreeing, counted
from pipeline.traces.folder import RunFolder

_PACKAGES = ("kgqa-pipeline", "hydra-core", "polars", "pyarrow", "pyoxigraph", "ray")


def read_resumable(folder: RunFolder, configurations: Sequence[Configuration]) -> Mapping[str, Any] | None:
    """Return the contents of `run.yaml`; None for a new run. Raises UserError if the folder holds another run.

    A run without an answer and a reply, such as one whose server refused every call, is no hindrance to another one;
    nor is one without an answer to a run of a mended method.
    """
    saved = folder.read_run()
    if saved is not None:
        configs = [each.config for each in configurations]
        try:
            resume.refuse_other_configurations(folder, saved, configs)
        except UserError:
            if resume.has_results(folder):
                raise
            return None
        try:
            resume.refuse_other_code(folder, saved, configs, _version("kgqa-pipeline"))
        except UserError:
            if (resume.has_results if begun_by_other(saved) else resume.has_answers)(folder):
                raise
            return None
    elif folder.finished():
        raise UserError(
            f"{folder.path} holds traces but no run.yaml that describes them: name another run.dir, or delete them "
            "with run.restart=true"
        )
    return saved


def _updated(saved: Mapping[str, Any], configurations: Sequence[Configuration]) -> Mapping[str, Any]:
    """Return the contents of `run.yaml` with configurations that ask more questions, and with new tags and a new note.

    Tags and note decide no result.
    """
    run = configurations[0].config["run"]
    saved = {**saved, **{name: run[name] for name in ("tags", "note") if run[name] is not None}}
    pairs = list(zip(saved["points"], configurations, strict=True))
    if not any(resume.asks_more(point["config"], now.config) for point, now in pairs):
        return saved
    points = [{**point, "overrides": list(now.overrides), "config": _resuming(now.config)} for point, now in pairs]
    return {**saved, "points": points}


class RunDescription:
    """Writes `run.yaml` when nothing refuses the run any more, and refuses other components afterwards.

    A new run is described when the first worker has opened its components. Only then are the results of an earlier run
    deleted, which it replaces: they stay if a server, a file or a model is missing.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        folder: RunFolder,
        saved: Mapping[str, Any] | None,
        console: Console,
    ) -> None:
        self._configurations = configurations
        self._folder = folder
        self._console = console
        self.id: str = (saved or {}).get("id") or secrets.token_hex(8)
        """Names the run in the file of every shard."""
        self._saved = None if saved is None else _updated(saved, configurations)
        has_id = saved is not None and "id" in saved  # else `run.yaml` was written to say which model must answer
        if self._saved is not None and not folder.finished():
            self._saved = {"id": self.id, **self._saved}
        self._is_changed = self._saved != saved
        self._is_going_on = False
        self.kept_calls = 0 if saved is None else folder.journal_calls()
        """The calls of unfinished shards that earlier attempts have made."""
        self._is_empty = has_id and not folder.finished() and not self.kept_calls
        """Whether the run has nothing yet that a model or a graph has replied: they may be others now."""
        self._started = time.time()
        self.began = self.opened = time.monotonic()
        """Seconds of a clock that never goes back; `opened` is when the last worker had opened its components."""

    @property
    def has_begun(self) -> bool:
        """Whether the folder has the `run.yaml` of this run."""
        return self._saved is not None

    @contextmanager
    def told_if_stopped(self) -> Iterator[None]:
        """Raise RunStopped for a KeyboardInterrupt after the run has begun."""
        try:
            yield
        except KeyboardInterrupt:
            if self.has_begun:
                raise RunStopped from None
            raise

    @contextmanager
    def stored(self, rejections: Rejections) -> Iterator[None]:
        """Store rejected rows at the end, if the run has begun: before, `rejected.jsonl` is that of an earlier one."""

        def end(*error: Any) -> None:
            if self.has_begun:
                rejections.__exit__(*error)

        with ExitStack() as stack:
            stack.push(end)
            yield

    def on_opened(self, backends: Sequence[Backends]) -> None:
        """Check the backends of a worker. Raises UserError if they are not those that the run began with."""
        if self._saved is None:
            self._replace_earlier()
            self._saved = {"id": self.id, **_describe(self._configurations, self._folder, backends, self._started)}
            self._folder.write_run(self._saved)
        if self._is_empty:
            self._saved = {**self._saved, "served": [asdict(each) for each in backends]}
            self._folder.write_run(self._saved)
            self._is_empty = False
        resume.refuse_other_backends(self._folder, self._saved, backends)
        if not self._is_going_on:
            self.accept()
            self._folder.remove_summary()
            self._is_going_on = True
        self.opened = time.monotonic()

    def _replace_earlier(self) -> None:
        """Delete what an earlier run has left in the folder. Say so if nobody has asked for it."""
        restart = self._configurations[0].config["run"]["restart"]
        if restart:
            self._folder.clear_batches()
        elif self._folder.has_run:
            said = f"the earlier run in {self._folder.path} answered no question: its files are deleted"
            self._console.print(said, markup=False, soft_wrap=True)
        self._folder.clear()

    def accept(self) -> None:
        """Name the folder, now that nothing refuses the run, and write what has changed in `run.yaml`."""
        self._console.print(f"run folder: {self._folder.path}", markup=False, soft_wrap=True)
        if self.kept_calls:
            stored = f"of unfinished shards {agreeing('are', self.kept_calls)} stored from before"
            self._console.print(f"{counted(self.kept_calls, 'model call')} {stored}")
        if self._is_changed:
            assert self._saved is not None, "a new run has not changed"
            self._folder.write_run(self._saved)


def _describe(
    configurations: Sequence[Configuration], folder: RunFolder, backends: Sequence[Backends], began: float
) -> dict[str, Any]:
    run = configurations[0].config["run"]
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(began)),
        "tags": run["tags"] or [],
        "note": run["note"],
        "begun_in": begun_in(folder),
        "chosen_by_scores": configurations[0].is_chosen_by_scores,
        "points": [
            {
                "overrides": list(each.overrides),
                "config": _resuming(each.config),
                "sources": user_sources(each.config) | project_sources(each.config),
                "models": model_sources(each.config),
                "data": versions(each.config["dataset"]),
            }
            for each in configurations
        ],
        "served": [asdict(each) for each in backends],
        "seed": run["seed"],
        "versions": {name: _version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        "git_commit": _git_commit(),
    }


def _resuming(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that resumes the run: without the keys that act once."""
    once = {"restart": False, "extend": False, "trust": False, "tags": None, "note": None}
    return {**resolved, "run": {**resolved["run"], **once}}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """Return the commit of the checkout that this package runs from; None for an installed package."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None
