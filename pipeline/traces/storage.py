"""Reads and writes files of a run folder, on this machine or in any object store that fsspec supports.

An object store has no rename, no append and no lock, but it writes each object atomically.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from upath import UPath

from pipeline.errors import StorageError, StoreOutage, UserError
from pipeline.net.urls import local_name, remote_scheme

StoragePath = Path | UPath
"""A `Path` is on this machine; a `UPath` is in an object store."""

TMP = ".tmp"
"""The suffix of files that are not complete yet."""
_CONCURRENT_READS = 32
"""Objects that are read concurrently."""
_AWAY = re.compile("Connect|Timeout|Unavailable")
"""A part of the name of an error with which a store's client says that the store does not answer."""


def storage_path(name: str | StoragePath) -> StoragePath:
    """Parse a path or a URL (`runs/x`, `s3://bucket/x`).

    The store's client takes credentials and endpoints from the environment, never from the URL.
    Raises StorageError for a store that cannot be reached, and UserError for one that is inside another one, or for a
    name that is no path.
    """
    if isinstance(name, Path | UPath):
        return name
    if not isinstance(name, str):
        raise UserError(f"{name!r} is no path: name a folder, such as 'runs/x'")
    if remote_scheme(name) is None:
        return Path(local_name(name))
    with _reaching(name):
        path = UPath(name, use_listings_cache=False)  # other processes write there, too
        path.exists()
    return path


def exists(path: StoragePath) -> bool:
    """Return whether there is a file or a folder. Raises StorageError if a store does not say it."""
    if isinstance(path, Path):
        return path.exists()
    with _reaching(path):
        return bool(path.exists())


def read_whole(path: StoragePath) -> bytes:
    """Return the contents of a file or object. Raises FileNotFoundError, or StorageError if it cannot be read."""
    if isinstance(path, Path):
        refuse_special(path)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            raise StorageError(
                f"{path} cannot be read: {error.strerror}; correct that, or restore it from a copy"
            ) from None
    with _reaching(path, except_for=FileNotFoundError):
        return path.read_bytes()


def read_all(paths: Sequence[StoragePath]) -> Iterator[Path | bytes]:
    """Yield what Polars can read: the path of a local file, or the contents of an object, fetched concurrently."""
    local = [path for path in paths if isinstance(path, Path)]
    if len(local) == len(paths):
        yield from local
        return
    with ThreadPoolExecutor(_CONCURRENT_READS) as pool:
        for at in range(0, len(paths), _CONCURRENT_READS):
            yield from pool.map(read_whole, paths[at : at + _CONCURRENT_READS])


@contextmanager
def opened(path: StoragePath) -> Iterator[BinaryIO]:
    """Open a file or an object to read parts of it. Raises OSError, or StorageError if a store does not answer."""
    with nullcontext() if isinstance(path, Path) else _reaching(path, FileNotFoundError), path.open("rb") as file:
        yield file


def matching(folder: StoragePath, pattern: str) -> list[StoragePath]:
    """Return the paths in a folder that match a pattern, sorted. Raises StorageError."""
    if isinstance(folder, Path):
        local = sorted(folder.glob(pattern))
        for path in local:
            refuse_special(path)
        return list[StoragePath](local)
    with _reaching(folder):
        return sorted(folder.glob(pattern), key=str)


def refuse_special(path: Path) -> None:
    """Raise StorageError for a pipe, a socket or a device, or a link to one: reading it would never end."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # who opens it says why
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise StorageError(f"{path} is no regular file: remove it, or restore it from a copy")


def names_in(folder: StoragePath) -> tuple[set[str], set[str]]:
    """Return the names of the files and of the subfolders, without links to folders. Raises OSError or StorageError."""
    if isinstance(folder, Path):
        with os.scandir(folder) as entries:
            kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    else:
        with _reaching(folder, FileNotFoundError):
            listed = folder.fs.ls(folder.path, detail=True)
            kinds = {entry["name"].rstrip("/").rpartition("/")[2]: entry["type"] == "directory" for entry in listed}
    return {name for name, is_folder in kinds.items() if not is_folder}, {name for name in kinds if kinds[name]}


def write_whole(path: StoragePath, contents: bytes) -> None:
    """Write atomically: a reader sees the old contents or the new. Raises StorageError."""
    if isinstance(path, UPath):
        with _reaching(path):
            path.write_bytes(contents)
        return
    with writing(path) as file:
        file.write(contents)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` once it is complete and synced to disk, as its name is afterwards.

    Raises StorageError.
    """
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}{TMP}")  # unique per writer
    with storing(path):
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _rename(temporary, path)
            _sync_names(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _rename(source: Path, target: Path) -> None:
    """Rename a file. NFS repeats a request whose reply was lost, and then finds no source: that is no error."""
    inode = source.stat().st_ino
    try:
        source.replace(target)
    except FileNotFoundError:
        if not target.exists() or target.stat().st_ino != inode:
            raise


def make_folder(folder: Path) -> list[Path]:
    """Create a folder and its parents, which survive a loss of power. Raises OSError.

    Returns those that did not exist, from the inside out.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _sync_names(each.parent)
    return missing


def remove(file: StoragePath) -> None:
    """Remove a file if it exists. After a loss of power it may be back. Raises StorageError."""
    with storing(file) if isinstance(file, Path) else _reaching(file):
        file.unlink(missing_ok=True)


def remove_all(files: Sequence[StoragePath]) -> None:
    """Remove files of one folder, as far as they exist. They do not come back after a loss of power.

    Raises StorageError.
    """
    for file in files:
        remove(file)
    for folder in {file.parent for file in files if isinstance(file, Path)}:
        with storing(folder):
            _sync_names(folder)


def _sync_names(folder: Path) -> None:
    """Sync the names in a folder to disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that syncs no folders
            raise
    finally:
        os.close(handle)


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"{path} cannot be written: {reason}; fix that and run the same command again") from None


@contextmanager
def _reaching(path: str | UPath, except_for: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Turn any exception of a store's client into a StorageError, `except_for` this one.

    Raises StoreOutage if the store does not answer, or asks for the request later.
    """
    try:
        yield
    except except_for:
        raise
    except Exception as error:  # noqa: BLE001 - every store's client has its own exceptions
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise (StoreOutage if _is_outage(error) else StorageError)(f"{path} cannot be reached: {reason}") from None


def _is_outage(error: Exception) -> bool:
    """Whether a store does not answer, or asks for the request later: s3fs says that with an errno."""
    asked_later = isinstance(error, OSError) and error.errno in (errno.EBUSY, errno.EIO, errno.ETIMEDOUT)
    return asked_later or any(_AWAY.search(kind.__name__) for kind in type(error).__mro__)
