"""The run folder: what lies where. Its file names are the state of a run; there is no other."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import UserError
from pipeline.llm.prompt import Template
from pipeline.traces.place import TMP, Place, matching, read_whole, write_whole


@dataclass(frozen=True)
class RunFolder:
    """`runs/NAME/`: `run.yaml`, `traces/`, `drafts/`, `prompts/`, `summary.json`, `rejected.jsonl`, `lock`."""

    path: Place

    def create(self) -> None:
        """Make the folder and its parts; an object store has no folders. Raises UserError when it cannot."""
        if not isinstance(self.path, Path):
            return
        try:
            for part in ("traces", "drafts", "prompts"):
                (self.path / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run.dir={self.path} cannot be made: {error.strerror}; name another run.dir") from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other drivers out, and clear what a killed one left. Raises UserError when a living one is in it.

        An object store has no lock: nothing but care keeps a second driver out there, and it wastes calls, no truth.
        """
        if not isinstance(self.path, Path):
            self._clear_drafts()
            yield
            return
        with (self.path / "lock").open("w") as lock:
            _lock(lock.fileno(), self.path)
            self._clear_half_written(self.path)
            self._clear_drafts()
            yield

    def _clear_half_written(self, path: Path) -> None:
        half_written = [*path.glob(f"run.yaml.*{TMP}"), *path.glob(f"summary.json.*{TMP}")]
        half_written += [file for part in ("traces", "prompts") for file in (path / part).glob(f"*.*{TMP}")]
        for file in half_written:
            file.unlink()

    def _clear_drafts(self) -> None:
        """Remove the drafts of shards that were committed just before the kill."""
        finished = self.finished()
        for draft in matching(self.path / "drafts", "shard-*.jsonl"):
            if int(draft.name.removeprefix("shard-").partition(".")[0]) in finished:
                draft.unlink()

    @property
    def traces(self) -> list[Place]:
        """The finished shards, in order. Raises UserError when there is none yet."""
        finished = [self.shard(index) for index in sorted(self.finished())]
        if not finished:
            raise UserError(f"{self.path} holds no finished shard: is it a run folder, and has the run begun?")
        return finished

    @property
    def rejected(self) -> Place:
        """Input rows that could not be read, one JSON object each; absent when there are none."""
        return self.path / "rejected.jsonl"

    def shard(self, index: int) -> Place:
        """The file that a shard is, once it is finished."""
        return self.path / "traces" / f"shard-{index:05d}.parquet"

    def drafts(self, index: int) -> list[Place]:
        """What workers left of a shard that is not finished."""
        return matching(self.path / "drafts", f"shard-{index:05d}.*.jsonl")

    def clear_drafts(self, index: int) -> None:
        """Remove all drafts of a shard that is committed, whoever wrote them."""
        for draft in self.drafts(index):
            draft.unlink(missing_ok=True)

    def finished(self) -> set[int]:
        """Indices of the finished shards: one directory listing."""
        return {int(path.stem.removeprefix("shard-")) for path in matching(self.path / "traces", "shard-*.parquet")}

    def read_run(self) -> dict[str, Any] | None:
        """The contents of `run.yaml`, or None when the run has not begun. Raises UserError when it is none of ours."""
        path = self.path / "run.yaml"
        try:
            run = yaml.safe_load(read_whole(path).decode())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (yaml.YAMLError, UnicodeDecodeError):
            run = None
        if not isinstance(run, dict) or not {"points", "served"} <= run.keys():
            raise UserError(f"{path} is not the run.yaml of a run: mend it, or name another run.dir")
        return run

    def write_run(self, run: dict[str, Any]) -> None:
        """Write `run.yaml`, atomically."""
        write_whole(self.path / "run.yaml", yaml.safe_dump(run, sort_keys=False, allow_unicode=True).encode())

    def read_summary(self) -> dict[str, Any] | None:
        """The contents of `summary.json`, or None while the run is not complete."""
        try:
            summary: dict[str, Any] = json.loads(read_whole(self.path / "summary.json"))
        except FileNotFoundError:
            return None
        return summary

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write `summary.json`, atomically."""
        write_whole(self.path / "summary.json", _json(summary))

    def write_template(self, role: str, template: Template) -> None:
        """Store the fixed text of a prompt under its digest. Raises StorageError."""
        path = self.path / "prompts" / f"{template.digest}.json"
        if not path.exists():
            text = {"role": role, "system": template.system, "user": template.user}
            if template.assistant:
                text["assistant"] = template.assistant
            write_whole(path, _json(text))

    def read_template(self, digest: str) -> Template:
        """Read back a prompt's fixed text."""
        text = json.loads(read_whole(self.path / "prompts" / f"{digest}.json"))
        return Template(system=text["system"], user=text["user"], assistant=text.get("assistant", ""))


def _lock(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{path} is in use by another process: wait for its end, or name another run.dir") from None
    except OSError:
        pass  # a cluster file system mounted without locks: nothing to hold on to, and no reason not to run


def _json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
