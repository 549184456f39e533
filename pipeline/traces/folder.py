"""The run folder: what lies where. Its file names are the state of a run; there is no other."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import StorageError, UserError
from pipeline.llm.prompt import Template

_TMP = ".tmp"


@dataclass(frozen=True)
class RunFolder:
    """`runs/NAME/`: `run.yaml`, `traces/`, `drafts/`, `prompts/`, `summary.json`, `rejected.jsonl`, `lock`."""

    path: Path

    def create(self) -> None:
        """Make the folder and its parts. Raises UserError when it cannot."""
        try:
            for part in ("traces", "drafts", "prompts"):
                (self.path / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run.dir={self.path} cannot be made: {error.strerror}; name another run.dir") from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other drivers out, and clear what a killed one left. Raises UserError when a living one is in it."""
        with (self.path / "lock").open("w") as lock:
            _lock(lock.fileno(), self.path)
            self._clear()
            yield

    def _clear(self) -> None:
        """Remove half-written files, and drafts of shards that were committed just before the kill."""
        half_written = [*self.path.glob(f"run.yaml.*{_TMP}"), *self.path.glob(f"summary.json.*{_TMP}")]
        half_written += [path for part in ("traces", "prompts") for path in (self.path / part).glob(f"*.*{_TMP}")]
        stale = [draft for index in self.finished() for draft in self.drafts(index)]
        for path in (*half_written, *stale):
            path.unlink()

    @property
    def traces(self) -> list[Path]:
        """The finished shards, in order. Raises UserError when there is none yet."""
        finished = [self.shard(index) for index in sorted(self.finished())]
        if not finished:
            raise UserError(f"{self.path} holds no finished shard: is it a run folder, and has the run begun?")
        return finished

    @property
    def rejected(self) -> Path:
        """Input rows that could not be read, one JSON object each; absent when there are none."""
        return self.path / "rejected.jsonl"

    def shard(self, index: int) -> Path:
        """The file that a shard is, once it is finished."""
        return self.path / "traces" / f"shard-{index:05d}.parquet"

    def drafts(self, index: int) -> list[Path]:
        """What workers left of a shard that is not finished."""
        return sorted((self.path / "drafts").glob(f"shard-{index:05d}.*.jsonl"))

    def finished(self) -> set[int]:
        """Indices of the finished shards: one directory listing."""
        return {int(path.stem.removeprefix("shard-")) for path in (self.path / "traces").glob("shard-*.parquet")}

    def read_run(self) -> dict[str, Any] | None:
        """The contents of `run.yaml`, or None when the run has not begun. Raises UserError when it is none of ours."""
        path = self.path / "run.yaml"
        if not path.exists():
            return None
        try:
            run = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError):
            run = None
        if not isinstance(run, dict) or not {"points", "served"} <= run.keys():
            raise UserError(f"{path} is not the run.yaml of a run: mend it, or name another run.dir")
        return run

    def write_run(self, run: dict[str, Any]) -> None:
        """Write `run.yaml`, atomically."""
        write_atomically(self.path / "run.yaml", yaml.safe_dump(run, sort_keys=False, allow_unicode=True))

    def read_summary(self) -> dict[str, Any] | None:
        """The contents of `summary.json`, or None while the run is not complete."""
        path = self.path / "summary.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write `summary.json`, atomically."""
        write_atomically(self.path / "summary.json", json.dumps(summary, indent=2, ensure_ascii=False) + "\n")

    def write_template(self, role: str, template: Template) -> None:
        """Store the fixed text of a prompt under its digest. Raises StorageError."""
        path = self.path / "prompts" / f"{template.digest}.json"
        if not path.exists():
            text = {"role": role, "system": template.system, "user": template.user}
            if template.assistant:
                text["assistant"] = template.assistant
            write_atomically(path, json.dumps(text, indent=2, ensure_ascii=False) + "\n")

    def read_template(self, digest: str) -> Template:
        """Read back a prompt's fixed text."""
        text = json.loads((self.path / "prompts" / f"{digest}.json").read_text(encoding="utf-8"))
        return Template(system=text["system"], user=text["user"], assistant=text.get("assistant", ""))


def _lock(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{path} is in use by another process: wait for its end, or name another run.dir") from None
    except OSError:
        pass  # a cluster file system mounted without locks: nothing to hold on to, and no reason not to run


def write_atomically(path: Path, text: str) -> None:
    """Write a text that readers see whole or not at all. Raises StorageError."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what is then renamed to `path`: it exists complete or not at all. Raises StorageError.

    No two writers, on whatever machines, get the same place; what one of them could not finish is removed.
    """
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}{_TMP}")
    with storing(path):
        try:
            yield beside
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Name the file in what the operating system says when it cannot be written. Raises StorageError."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error  # Arrow puts many words around it
        raise StorageError(f"{path} cannot be written: {reason}; mend that and run the same command again") from None
