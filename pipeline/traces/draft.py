"""The draft of an open shard: each finished model call, kept as it returns.

Whoever takes a shard over replays its drafts and repeats only the calls that are not in them. Every worker writes a
draft of its own, so that no two ever write to one file; a torn line is a call that was not made. The drafts go when
the shard is committed.

On this machine a draft is a file that each call is appended to. An object cannot be appended to: there a draft is a
series of objects, each with the calls of a few seconds.
"""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Protocol, Self

import orjson
from upath import UPath

from pipeline.errors import StorageError
from pipeline.llm.prompt import Completion
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import Place, read_whole, storing, write_whole

PERIOD_S = 5.0
"""Seconds between two objects of a draft."""


class Draft:
    """The calls of one open shard, an asynchronous context manager.

    As soon as `append` returns, a call is safe from the death of this process; in an object store `PERIOD_S` later.
    """

    def __init__(self, folder: RunFolder, shard: int) -> None:
        self._folder = folder
        self._shard = shard

    async def __aenter__(self) -> Self:
        """Read what others left of the shard, and open a draft of our own beside it."""
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self._own.close, keep=True)

    def _open(self) -> None:
        self._known = _replay(self._folder.drafts(self._shard))
        stem = f"shard-{self._shard:05d}.{uuid.uuid4().hex[:8]}"
        drafts = self._folder.path / "drafts"
        self._own: _Own = _File(drafts / f"{stem}.jsonl") if isinstance(drafts, Path) else _Objects(drafts / stem)

    def calls(self, question_id: str) -> dict[str, Completion]:
        """The finished calls of a question by another worker, by call key."""
        return self._known.get(question_id, {})

    def append(self, question_id: str, key: str, completion: Completion) -> None:
        """Keep one finished call. Raises StorageError."""
        self._own.append(orjson.dumps((question_id, key, completion)) + b"\n")

    async def discard(self) -> None:
        """Remove every draft of the shard, whoever wrote it; call it once the shard is committed."""
        await asyncio.to_thread(self._discard)

    def _discard(self) -> None:
        self._own.close(keep=False)
        self._folder.clear_drafts(self._shard)


class _Own(Protocol):
    """Where the lines of our own draft go."""

    def append(self, line: bytes) -> None: ...

    def close(self, *, keep: bool) -> None: ...


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path
        # Unbuffered: one append-only write per line, which the kernel keeps when this process is killed.
        self._file = path.open("ab", buffering=0)

    def append(self, line: bytes) -> None:
        with storing(self._path):
            if self._file.write(line) < len(line):  # a disk that has just filled up takes a part and says nothing
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self, *, keep: bool) -> None:
        self._file.close()


class _Objects:
    """A thread of its own puts the lines into the store, so that no call waits for it."""

    def __init__(self, stem: UPath) -> None:
        self._names = (stem.with_name(f"{stem.name}.{number:05d}.jsonl") for number in count())
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._error: StorageError | None = None
        self._closing = Event()
        self._thread = Thread(target=self._store_periodically, daemon=True)
        self._thread.start()

    def append(self, line: bytes) -> None:
        if self._error:
            raise self._error
        self._lines.put(line)

    def _store_periodically(self) -> None:
        while not self._closing.wait(PERIOD_S):
            self._store(self._drain())

    def _store(self, lines: Sequence[bytes]) -> None:
        try:
            if lines:
                write_whole(next(self._names), b"".join(lines))
        except StorageError as error:
            self._error = error

    def _drain(self) -> list[bytes]:
        return [self._lines.get() for _ in range(self._lines.qsize())]

    def close(self, *, keep: bool) -> None:
        self._closing.set()
        self._thread.join()
        rest = self._drain()
        if keep:
            self._store(rest)


def _replay(paths: Sequence[Place]) -> dict[str, dict[str, Completion]]:
    known: defaultdict[str, dict[str, Completion]] = defaultdict(dict)
    for path in paths:
        try:
            lines = read_whole(path).splitlines()
        except FileNotFoundError:  # whoever wrote it has just committed the shard
            continue
        for line in lines:
            try:
                question_id, key, completion = orjson.loads(line)
            except orjson.JSONDecodeError:  # torn by the death of its writer
                continue
            known[question_id][key] = Completion(**completion)
    return known
