"""Where a run folder lies: in a folder of this machine, or in any object store that fsspec knows.

An object store has no rename, no append and no lock; but it takes an object whole or not at all.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from upath import UPath

from pipeline.errors import StorageError, UserError

Place = Path | UPath
"""A `Path` is on this machine; a `UPath` is not."""

TMP = ".tmp"
"""How the names of files end that are not whole yet."""
_AT_ONCE = 32
"""Objects that are read at once."""


def place(name: str | Place) -> Place:
    """What a path or a URL names (`runs/x`, `s3://bucket/x`). Raises UserError for a store that cannot be reached.

    Credentials and endpoints come from the environment, as the store's own client wants them, never from the URL.
    """
    if isinstance(name, Path | UPath):
        return name
    scheme, separator, rest = name.partition("://")
    if not separator or scheme in ("file", "local"):
        return Path(rest if separator else name)
    if "@" in rest.partition("/")[0]:
        raise UserError(f"{scheme}://…@… holds credentials, which run.yaml would keep: give them in the environment")
    with _reaching(name):
        found = UPath(name, use_listings_cache=False)  # what others put there has to be seen
        found.exists()
    return found


def read_whole(path: Place) -> bytes:
    """The contents of a file or object. Raises FileNotFoundError, and StorageError for a store that is away."""
    if isinstance(path, Path):
        return path.read_bytes()
    with _reaching(path, but=FileNotFoundError):
        return path.read_bytes()


def read_all(paths: Sequence[Place]) -> Iterator[Path | bytes]:
    """What Polars can read in place of each: a local file itself, and an object's contents, many fetched at once."""
    local = [path for path in paths if isinstance(path, Path)]
    if len(local) == len(paths):
        yield from local
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for at in range(0, len(paths), _AT_ONCE):
            yield from pool.map(read_whole, paths[at : at + _AT_ONCE])


def matching(folder: Place, pattern: str) -> list[Place]:
    """What lies in a folder under names of a pattern, sorted. Raises StorageError."""
    if isinstance(folder, Path):
        return sorted(folder.glob(pattern))
    with _reaching(folder):
        return sorted(folder.glob(pattern), key=str)


def write_whole(path: Place, contents: bytes) -> None:
    """Write so that a reader sees the old contents or the new, never a part. Raises StorageError."""
    if isinstance(path, UPath):
        with _reaching(path):
            path.write_bytes(contents)
        return
    with writing(path) as file:
        file.write(contents)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its place once it is whole and on the disk; until then it is not there. Raises StorageError."""
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}{TMP}")  # no two writers get the same one
    with storing(path):
        try:
            with beside.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Name the file in what the operating system says when it cannot be written. Raises StorageError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"{path} cannot be written: {reason}; mend that and run the same command again") from None


@contextmanager
def _reaching(what: str | UPath, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Put into words what a store's client raises, `but` for this."""
    try:
        yield
    except but:
        raise
    except Exception as error:  # noqa: BLE001 - every store's client has errors of its own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StorageError(f"{what} cannot be reached: {reason}") from None
