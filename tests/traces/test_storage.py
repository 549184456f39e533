"""Paths and URLs of run folders. `tests/integration` tests a real object store."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from contextlib import nullcontext
from pathlib import Path
from typing import IO

import pytest

from pipeline.errors import StorageError, UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath, matching, read_all, read_whole, storage_path, write_whole


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> StoragePath:
    return tmp_path if request.param == "local" else storage_path(f"memory://{uuid.uuid4().hex}/run")


def test_a_written_file_is_complete_and_listed(folder: StoragePath) -> None:
    for number in (2, 1):
        write_whole(folder / f"shard-{number}.x", b"old")
        write_whole(folder / f"shard-{number}.x", b"new %d" % number)
    assert [path.name for path in matching(folder, "shard-*.x")] == ["shard-1.x", "shard-2.x"]
    assert [path.name for path in folder.iterdir() if path.suffix != ".x"] == [], "no temporary file is left"
    assert read_whole(folder / "shard-1.x") == b"new 1"
    assert matching(folder / "nothing", "*") == []
    with pytest.raises(FileNotFoundError):
        read_whole(folder / "shard-3.x")


def test_many_objects_are_read_in_order() -> None:
    folder = storage_path(f"memory://{uuid.uuid4().hex}")
    paths = [folder / str(number) for number in range(100)]
    for number, path in enumerate(paths):
        write_whole(path, b"%d" % number)
    assert list(read_all(paths)) == [b"%d" % number for number in range(100)]


def test_a_local_file_is_not_read_into_memory(tmp_path: Path) -> None:
    assert list(read_all([tmp_path / "a", tmp_path / "b"])) == [tmp_path / "a", tmp_path / "b"]


def test_paths_and_file_urls_are_local() -> None:
    assert storage_path("runs/x") == Path("runs/x")
    assert storage_path("file:///runs/x") == Path("/runs/x")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://key:secret@runs/x", "holds credentials"),
        ("memory://runs/x?token=abc", "holds credentials"),
        ("nosuch://x/y", "nosuch://x/y cannot be reached: "),
        ("gs://x/y", "install gcsfs"),
        ("reference::file:///x/y", "names a store inside another one"),
        ("zip://x::memory://y", "names a store inside another one"),
        ("file://x::memory://y", "names a store inside another one"),
    ],
)
def test_an_unreachable_store_is_a_user_error(url: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        storage_path(url)


@pytest.mark.parametrize("renamed", [True, False])
def test_a_repeated_rename_of_nfs_is_no_error(renamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply to a rename is lost, and the repeated request finds no source. Without the first one it is an error."""
    path = tmp_path / "shard"
    write_whole(path, b"old")

    def replace(source: str, target: str) -> None:
        if renamed:
            os.rename(source, target)
        raise FileNotFoundError(2, "No such file or directory", source)

    monkeypatch.setattr(os, "replace", replace)
    if renamed:
        write_whole(path, b"new")
    else:
        with pytest.raises(StorageError, match="cannot be written"):
            write_whole(path, b"new")
    assert path.read_bytes() == (b"new" if renamed else b"old")


@pytest.mark.parametrize(
    "name", ["run.yaml", "summary.json", "lock", "traces/shard-00000.parquet", "drafts/shard-1.jsonl"]
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_in_place_of_a_file_is_refused(name: str, kind: str, tmp_path: Path) -> None:
    """To read one never ends: a pipe has no data, and a device has no end."""
    folder = RunFolder(tmp_path)
    folder.create()
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(StorageError, match=f"{name} is no regular file"):
        _read_and_hold(folder)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_folder_whose_lock_is_that_of_another_user_is_locked_all_the_same(
    *, goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    with folder.held():
        pass
    may_open = Path.open

    def open_to_read(path: Path, mode: str = "r") -> IO[str]:
        if mode == "a":
            raise PermissionError(errno.EACCES, "Permission denied")
        return may_open(path, mode)  # type: ignore[return-value]

    with may_open(tmp_path / "lock") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX if goes_on else fcntl.LOCK_UN)
        monkeypatch.setattr(Path, "open", open_to_read)
        refused = pytest.raises(UserError, match="is in use by another process")
        with refused if goes_on else nullcontext(), folder.held():
            assert not goes_on


def test_a_file_system_that_locks_only_what_may_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NFS does: without a lock, two runs could write into the folder."""

    def flock(*_: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(UserError, match="lock may not be written, and so cannot be locked here"):
        _read_and_hold(RunFolder(tmp_path))


def _read_and_hold(folder: RunFolder) -> None:
    folder.read_run()
    folder.read_summary()
    folder.finished()
    with folder.held():
        pass
