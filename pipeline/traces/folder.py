"""The layout of a run folder. Its files are the whole state of a run."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO, TypeAlias

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from pipeline.errors import UserError, first_defect
from pipeline.llm.prompt import Template
from pipeline.text import kgqa, load_yaml
from pipeline.traces.run_file import read_run_file
from pipeline.traces.storage import (
    TMP,
    StoragePath,
    exists,
    make_folder,
    matching,
    names_in,
    read_whole,
    refuse_special,
    remove,
    remove_all,
    write_whole,
)

_SHARD = re.compile(r"shard-(\d{5,9})\.parquet")
_JOURNAL = re.compile(r"shard-(\d{5,9})\.[0-9a-f]{8}(?:\.\d{5,})?\.jsonl")
_OWN = {"run.yaml", "summary.json", "rejected.jsonl", "stopped.txt", "lock", "traces", "drafts", "prompts"}
"""The files and folders of a run."""
_DIGEST = re.compile(r"[0-9a-f]{16}")
BATCH = "batch-"
"""How the names of the further batches of a search begin: each is a run folder inside that of the first batch."""
_BATCH = re.compile(rf"{BATCH}\d{{3,}}")
RunState: TypeAlias = Literal["complete", "still running", "not complete"]
"""How far a run is; one that is not complete was stopped, or leaves out questions."""
_TEMPLATE = TypeAdapter(dict[str, str])


class _Configuration(BaseModel):
    questions: int
    failed: int = 0


class _Summary(BaseModel):
    """What every `summary.json` has."""

    points: list[_Configuration]
    rejected: int
    physical_llm_calls: int
    reused_llm_calls: int | None = None
    max_failed: float = 1
    shards: int = 0


@dataclass(frozen=True)
class RunFolder:
    """`runs/NAME/`: `run.yaml`, `summary.json`, `rejected.jsonl`, `stopped.txt`, `lock`, and three folders.

    They are `traces/`, `drafts/` and `prompts/`.
    """

    path: StoragePath

    def create(self) -> list[Path]:
        """Create the folder and its subfolders; an object store has none. Raises UserError if that fails.

        Returns the folder and those around it that did not exist before, from the inside out.
        """
        if not isinstance(self.path, Path):
            return []
        try:
            created = make_folder(self.path)
            for part in ("traces", "drafts", "prompts"):
                make_folder(self.path / part)
        except OSError as error:
            raise UserError(f"run.dir={self.path} cannot be created: {error.strerror}; name another run.dir") from None
        return created

    def other_file(self) -> str | None:
        """Return the name of a file or folder here that no run has written; None in an object store."""
        if not (isinstance(self.path, Path) and self.path.is_dir()):
            return None
        names = (each.name for each in self.path.iterdir() if not each.name.startswith("."))
        return min((name for name in names if name not in _OWN), default=None)

    @property
    def is_no_run(self) -> bool:
        """Whether this is a file, or a folder without any file of a run; False for nothing, and in an object store."""
        if not (isinstance(self.path, Path) and self.path.exists()):
            return False
        return not any((self.path / name).exists() for name in _OWN)

    def outer_run(self) -> Path | None:
        """Return the run folder that this one lies in; None if there is none, or in an object store."""
        parents = self.path.parents if isinstance(self.path, Path) else ()
        return next((each for each in parents if RunFolder(each).has_run), None)

    @property
    def search(self) -> StoragePath | None:
        """The run folder of the search whose further batch this is, by its name; None for any other run."""
        outer = self.path.parent
        return outer if _BATCH.fullmatch(self.path.name) and RunFolder(outer).has_run else None

    def batches(self) -> list[StoragePath]:
        """Return the run folders that have the names of further batches of a search, in their order."""
        try:
            _, subfolders = names_in(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        names = [name for name in sorted(subfolders) if _BATCH.fullmatch(name)]
        return [self.path / name for name in names] if names and self.has_run else []

    @property
    def is_batch(self) -> bool:
        """Whether a search has made the run in a folder with the name of a batch.

        Its command named the folder of the search, and not this one.
        """
        try:
            run = self.read_run()
        except UserError:  # a run.yaml that cannot be read
            return False
        words = run["points"][0]["overrides"] if run else []
        named = [word.partition("=")[2] for word in words if word.lstrip("+").startswith("run.dir=")]
        return run is not None and not any(name.strip("'\"/").endswith(self.path.name) for name in named)

    @property
    def deciding_search(self) -> RunFolder | None:
        """The run folder of the search that has chosen later batches by the scores of this run; None if none has."""
        outer = self.search if self.is_batch else None
        first = self if outer is None else RunFolder(outer)
        later = (batch for batch in first.batches() if outer is None or batch.name > self.path.name)
        return first if any(RunFolder(batch)._is_chosen_by_scores for batch in later) else None

    @property
    def _is_chosen_by_scores(self) -> bool:
        """Whether a search has made the run by the scores of earlier batches. Older runs do not say it."""
        return self.is_batch and bool(self.require_run().get("chosen_by_scores", True))

    def remove_if_empty(self, created: Sequence[Path], *, is_wrong: bool = False) -> None:
        """Remove the folder if nothing but rejected rows was stored in it: the error of the command names the first.

        `created` is what `create` returned. Without the run folder nothing is removed; folders around it go with it.
        The folder of a command that `is_wrong` may also describe a run that has no reply yet: no command continues it.
        """
        if self.path not in created:
            return
        left: set[StoragePath] = {self.path / "lock", self.rejected}
        if is_wrong:
            drafts = (draft for draft in matching(self.path / "drafts", "shard-*.jsonl") if not read_whole(draft))
            left |= {self.path / "run.yaml", *matching(self.path / "prompts", "*.json"), *drafts}
        if any(file.is_file() for file in created[0].rglob("*") if file not in left):
            return
        shutil.rmtree(created[0], ignore_errors=True)
        for around in created[1:]:
            with suppress(OSError):  # another command has used it meanwhile
                around.rmdir()

    def clear_batches(self) -> None:
        """Remove the further batches of a search. Raises UserError, before anything is removed, if one is running."""
        batches = [batch for batch in map(RunFolder, self.batches()) if batch.is_batch]
        with ExitStack() as locks:
            for batch in batches:
                locks.enter_context(batch.held())
            for batch in batches:
                batch.clear()
        for batch in batches:
            if isinstance(batch.path, Path) and {each.name for each in batch.path.iterdir()} <= _OWN:
                shutil.rmtree(batch.path, ignore_errors=True)

    def clear(self) -> None:
        """Remove the results of the run. `run.yaml` goes first: a run that is cleared in part is not resumed."""
        for files in (
            [self.path / "run.yaml", self.path / "summary.json", self.rejected, self._stopped],
            matching(self.path / "drafts", "shard-*.jsonl"),
            matching(self.path / "traces", "shard-*.parquet"),
        ):
            remove_all(files)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder against other drivers, and remove files of a killed one. Raises UserError if it is locked.

        An object store has no lock. A second driver there wastes calls but does not change the results.
        """
        if not isinstance(self.path, Path):
            self._clear_finished_journals()
            yield
            return
        with _open_lock(self.path / "lock") as lock:
            _lock(lock.fileno(), self.path)
            self._clear_half_written(self.path)
            self._clear_finished_journals()
            yield

    def state(self, summary: Mapping[str, Any] | None) -> RunState:
        """Return how far the run with this `summary.json` is; None for none. A run without a lock never goes on."""
        if summary and summary.get("complete"):
            return "complete"
        return "still running" if isinstance(self.path, Path) and _is_locked(self.path / "lock") else "not complete"

    def _clear_half_written(self, path: Path) -> None:
        half_written = [*path.glob(f"run.yaml.*{TMP}"), *path.glob(f"summary.json.*{TMP}")]
        half_written += [file for part in ("traces", "prompts") for file in (path / part).glob(f"*.*{TMP}")]
        for file in half_written:
            file.unlink()

    def _clear_finished_journals(self) -> None:
        """Remove the journals of shards that were committed just before a driver was killed."""
        finished = self.finished()
        for journal in matching(self.path / "drafts", "shard-*.jsonl"):
            name = _JOURNAL.fullmatch(journal.name)
            if name and int(name[1]) in finished:
                remove(journal)

    @property
    def traces(self) -> list[StoragePath]:
        """The files of the finished shards, in order. Raises UserError if there is none yet."""
        return list(map(self.shard, self.require_finished()))

    def require_finished(self) -> list[int]:
        """Return the indices of the finished shards, in order. Raises UserError if there is none yet."""
        finished = sorted(self.finished())
        if not finished:
            if not self.has_run:
                raise self._no_run("no run has begun in it")
            goes_on = f"{kgqa('evaluate', self.path / 'run.yaml')} continues it"
            if error := self.read_error():
                raise UserError(f"{self.path} holds no answer: its run ended without one, because {error}")
            if self.state(None) == "still running":
                raise UserError(f"{self.path} holds no finished shard yet: its run is still running")
            raise UserError(f"{self.path} holds no finished shard yet: its run has begun, and {goes_on}")
        return finished

    def _no_run(self, why: str) -> UserError:
        """Return the error for a folder without a run, which names the command that lists runs if it is missing."""
        if isinstance(self.path, Path):
            if not exists(self.path):
                why = "it does not exist (see kgqa ls)"
            elif self.path.is_file():
                why = f"it is a file; name its folder, {self.path.parent}"
        return UserError(f"{self.path} is not a run folder: {why}")

    @property
    def _stopped(self) -> StoragePath:
        """The file with the error that stopped the run; absent while it goes on."""
        return self.path / "stopped.txt"

    def write_error(self, error: str) -> None:
        """Store the error that stopped the run, for the commands that read its folder. Raises StorageError."""
        write_whole(self._stopped, error.encode())

    def read_error(self) -> str:
        """Return the error that stopped the run, without the lines of a traceback; empty if none did."""
        try:
            lines = read_whole(self._stopped).decode(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return " ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))

    def journal_calls(self) -> int:
        """Count the model calls in the journals of open shards. Those of a finished shard may not be deleted yet."""
        finished = {self.shard(index).stem for index in self.finished()}
        journals = matching(self.path / "drafts", "shard-*.jsonl")
        return sum(read_whole(file).count(b"\n") for file in journals if file.name.partition(".")[0] not in finished)

    @property
    def has_run(self) -> bool:
        """Whether a run has begun in the folder."""
        return exists(self.path / "run.yaml")

    @property
    def rejected(self) -> StoragePath:
        """The file of input rows that could not be read, one JSON object each; absent if there are none."""
        return self.path / "rejected.jsonl"

    def shard(self, index: int) -> StoragePath:
        """Return the file of a shard, which exists once the shard is finished."""
        return self.path / "traces" / f"shard-{index:05d}.parquet"

    def journals(self, index: int) -> list[StoragePath]:
        """Return the journals of a shard that is not finished."""
        return matching(self.path / "drafts", f"shard-{index:05d}.*.jsonl")

    def clear_journals(self, index: int) -> None:
        """Remove all journals of a committed shard."""
        for journal in self.journals(index):
            remove(journal)

    def finished(self) -> set[int]:
        """Return the indices of the finished shards, by one directory listing.

        Raises UserError for a file with the name of no shard, such as the second copy that the sync of files makes.
        """
        paths = matching(self.path / "traces", "shard-*.parquet")
        names = [_SHARD.fullmatch(path.name) for path in paths]
        if wrong := [path for path, name in zip(paths, names, strict=True) if name is None]:
            raise UserError(f"{wrong[0]} is not the name of a shard: compare it with the other files, and remove one")
        return {int(name[1]) for name in names if name}

    def read_run(self) -> Mapping[str, Any] | None:
        """Return the contents of `run.yaml`, as `read_run_file` does; None if the run has not started.

        Raises UserError.
        """
        try:
            return read_run_file(self.path / "run.yaml")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_head(self) -> Mapping[str, Any] | None:
        """Return what `run.yaml` says before `points`: start, tags and note. It is fast for any number of these.

        Returns all of `run.yaml` if an older version wrote it; None if the run has not started. Raises UserError.
        """
        try:
            head = load_yaml(read_whole(self.path / "run.yaml").partition(b"\npoints:")[0])
        except (OSError, ValueError, RecursionError, yaml.YAMLError):
            head = None
        return head if isinstance(head, dict) and "started" in head else self.read_run()

    def require_run(self) -> Mapping[str, Any]:
        """Return the contents of `run.yaml`. Raises UserError if there is none, or it is not that of a run."""
        run = self.read_run()
        if run is None:
            raise self._no_run("it has no run.yaml")
        return run

    def write_run(self, run: Mapping[str, Any]) -> None:
        """Write `run.yaml`, atomically."""
        write_whole(self.path / "run.yaml", yaml.safe_dump(dict(run), sort_keys=False, allow_unicode=True).encode())

    def read_summary(self) -> dict[str, Any] | None:
        """Return the contents of `summary.json`; None while the run is not complete. Raises UserError.

        A run of which a shard has been removed is not complete either.
        """
        path = self.path / "summary.json"
        try:
            contents = read_whole(path)
            _Summary.model_validate_json(contents)
            summary: dict[str, Any] = json.loads(contents)
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise self.damaged_summary(first_defect(error)) from None
        digest = summary.pop("digest", None)  # older versions wrote none
        if digest is not None and digest != _digest(summary):
            raise self.damaged_summary("its digest does not match")
        shards = summary.get("shards", 0)  # older versions wrote none
        return None if len(self.finished()) < shards else summary

    def damaged_summary(self, why: str) -> UserError:
        """Return the error that says what to do about the `summary.json`."""
        return UserError(
            f"{self.path / 'summary.json'} is damaged ({why}): remove it, and "
            f"{kgqa('evaluate', self.path / 'run.yaml')} writes it again"
        )

    def remove_summary(self) -> None:
        """Remove `summary.json` and `stopped.txt`: the run is not complete until a summary is written again."""
        remove_all([self.path / "summary.json", self._stopped])

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write `summary.json` with the number of shards and a digest of its contents, atomically.

        Nothing is written if it has these contents: equal scores can be computed again in a folder that is read-only.
        """
        path, whole = self.path / "summary.json", {**summary, "shards": len(self.finished())}
        contents = _json({**whole, "digest": _digest(whole)})
        if not exists(path) or read_whole(path) != contents:
            write_whole(path, contents)

    def write_template(self, role: str, template: Template) -> None:
        """Store the fixed text of a prompt under its digest. Raises StorageError."""
        path = self.path / "prompts" / f"{template.digest}.json"
        if not exists(path):
            text = {"role": role, "system": template.system, "user": template.user}
            if template.assistant:
                text["assistant"] = template.assistant
            write_whole(path, _json(text))

    def read_template(self, digest: str) -> Template:
        """Return the fixed text of a prompt by its digest. Raises UserError if it is missing or damaged."""
        if not _DIGEST.fullmatch(digest):
            raise UserError(f"a step of {self.path} names the prompt '{digest}', which is no digest of a prompt")
        path = self.path / "prompts" / f"{digest}.json"
        try:
            text = _TEMPLATE.validate_json(read_whole(path))
            template = Template(system=text["system"], user=text["user"], assistant=text.get("assistant", ""))
        except FileNotFoundError:
            raise UserError(f"{path} is missing: restore it from a copy of the run") from None
        except (KeyError, ValidationError):
            template = None
        if template is None or template.digest != digest:
            raise UserError(f"{path} is damaged: restore it from a copy of the run")
        return template


def _open_lock(path: Path) -> TextIO:
    refuse_special(path)
    try:
        return path.open("a")  # a link to another file must not empty that file
    except PermissionError as error:
        with suppress(OSError):
            return path.open()  # it may be that of another user, whose run may go on
        raise UserError(f"{path} cannot be opened: {error.strerror}; name another run.dir") from None
    except OSError as error:
        remedy = "name" if error.errno == errno.EROFS else "remove it, or name"
        raise UserError(f"{path} cannot be opened: {error.strerror}; {remedy} another run.dir") from None


def _lock(handle: int, path: Path) -> None:
    """Take the lock. Raises UserError if another process has it."""
    for waits_s in (0.1, 0.1, None):  # `_is_locked` of another process holds the lock for an instant
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waits_s is None:
                raise UserError(
                    f"{path} is in use by another process: wait until it ends, or name another run.dir"
                ) from None
            time.sleep(waits_s)
        except OSError as error:
            if error.errno == errno.EBADF:  # NFS locks only what may be written
                lock = f"{path / 'lock'} may not be written, and so cannot be locked here"
                raise UserError(f"{lock}: get permission to write it, or name another run.dir") from None
            return  # a cluster file system without locks: run without one
        else:
            return


def _is_locked(path: Path) -> bool:
    """Return whether a driver holds the lock. The test takes a shared lock, which is given back at once."""
    try:
        with path.open() as lock:
            fcntl.flock(lock.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no file, or a file system without locks
        return False
    return False


def _digest(document: dict[str, Any]) -> str:
    return hashlib.blake2b(_json(document), digest_size=8).hexdigest()


def _json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
