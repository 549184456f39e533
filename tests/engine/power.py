"""What is left of a folder after a loss of power: only what was synced, or every name with synced contents."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock


@dataclass(frozen=True)
class Disk:
    """A state of the disk. Files and folders are named by inode, so a renamed file stays the same file."""

    names: Mapping[int, Mapping[str, int]]
    """The names in each folder that was synced."""
    contents: Mapping[int, bytes]
    """The contents of each file that was synced."""


class SyncRecorder:
    """Replaces `os.fsync`, and records the state of the disk after each call of it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sync = os.fsync
        self._lock = Lock()
        self._kept: list[int] = []
        self.states: list[tuple[Disk, Disk]] = []
        """After each sync: only what was synced; and all names, with the contents that were synced."""
        self._durable = Disk({}, {})

    def __call__(self, handle: int) -> None:
        """Sync a file or a folder. Shards are written by several threads."""
        with self._lock:
            self._record(handle)

    def _record(self, handle: int) -> None:
        self._sync(handle)
        self._kept.append(os.dup(handle))  # no other file may get its inode
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if not path.is_relative_to(self._root):
            return
        names, contents = dict(self._durable.names), dict(self._durable.contents)
        inode = os.fstat(handle).st_ino
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            names[inode] = _names(path)
        else:
            contents[inode] = path.read_bytes()
        self._durable = Disk(names, contents)
        every = {folder.stat().st_ino: _names(folder) for folder in (self._root, *self._root.rglob("*/"))}
        self.states.append((self._durable, Disk(every, contents)))

    def restore(self, disk: Disk, root: Path) -> None:
        """Write a state of the disk to a new folder."""
        self._restore(disk, self._root.stat().st_ino, root)

    def _restore(self, disk: Disk, inode: int, folder: Path) -> None:
        folder.mkdir()
        for name, inside in disk.names.get(inode, {}).items():
            if inside in self._folders:
                self._restore(disk, inside, folder / name)
            else:
                (folder / name).write_bytes(disk.contents.get(inside, b""))

    @property
    def _folders(self) -> set[int]:
        return {inode for _, every in self.states for inode in every.names}

    def close(self) -> None:
        """Release the files that were synced."""
        for handle in self._kept:
            os.close(handle)


def _names(folder: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(folder)}
