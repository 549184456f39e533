"""The journal of an open shard: each finished model call, stored before its question goes on.

A worker that takes over a shard reads its journals and repeats only the calls that are not in them. Every worker writes
a journal of its own, so no two processes write to one file. A line that was only partly written is ignored, and so is
one whose reply has wrong types; their calls are made again. The journals are removed when the shard is committed.

On a file system a journal is a file in `drafts/`, and each call is appended to it. In an object store, which cannot
append, a journal is a series of objects, each with the calls of a few seconds.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import uuid
from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Self

import orjson
from pydantic import ValidationError
from upath import UPath

from pipeline.errors import StorageError
from pipeline.llm.prompt import STORED_COMPLETION, Completion
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath, read_whole, storing, write_whole

_log = logging.getLogger(__name__)

PERIOD_S = 5.0
"""Seconds between two objects of a journal."""


class Journal:
    """Stores the calls of one open shard. It is an asynchronous context manager.

    When `append` returns, the call survives the death of this process; in an object store, `PERIOD_S` seconds later.
    The calls of one turn of the event loop are written at once: to write each by itself costs more than to ask for it.
    """

    def __init__(self, folder: RunFolder, shard: int) -> None:
        self._folder = folder
        self._shard = shard
        self._turn: list[tuple[bytes, asyncio.Future[None]]] = []
        """The lines of this turn, and who waits until they are written."""
        self._is_closing = False

    async def __aenter__(self) -> Self:
        """Read the journals that other workers left, and open a new one."""
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._is_closing = True
        await asyncio.sleep(0)  # the calls that were cancelled in this turn are written first
        await asyncio.to_thread(self._own.close, keep=True)

    def _open(self) -> None:
        self._known = _replay(self._folder.journals(self._shard))
        stem = f"shard-{self._shard:05d}.{uuid.uuid4().hex[:8]}"
        path = self._folder.path / "drafts"
        self._own: _File | _Objects = _File(path / f"{stem}.jsonl") if isinstance(path, Path) else _Objects(path / stem)

    def calls(self, question_id: str, configuration: int | None = None) -> dict[str, Completion]:
        """Return the finished calls of a question by earlier workers, by call key.

        `configuration` is None for the calls that all configurations share.
        """
        return self._known.get((question_id, configuration), {})

    async def append(
        self, question_id: str, key: str, completion: Completion, *, configuration: int | None = None
    ) -> None:
        """Store one finished call. Raises StorageError."""
        if self._is_closing:  # the run has been stopped, and its questions are given up one after the other
            return
        loop = asyncio.get_running_loop()
        if not self._turn:
            loop.call_soon(self._store)
        stored = loop.create_future()
        self._turn.append((orjson.dumps((question_id, configuration, key, completion)) + b"\n", stored))
        await stored

    def _store(self) -> None:
        """Write the lines of this turn, and let their questions go on."""
        turn, self._turn = self._turn, []
        error: StorageError | None = None
        try:
            self._own.append(b"".join(line for line, _ in turn))
        except StorageError as raised:
            error = raised
        for _, stored in turn:
            if stored.done():  # its question was given up
                continue
            if error is None:
                stored.set_result(None)
            else:
                stored.set_exception(error)

    async def discard(self) -> None:
        """Remove every journal of the shard. Call it after the shard is committed."""
        await asyncio.to_thread(self._discard)

    def _discard(self) -> None:
        self._own.close(keep=False)
        self._folder.clear_journals(self._shard)


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path
        # Unbuffered: one append-only write, which the kernel keeps when this process is killed.
        self._file = path.open("ab", buffering=0)

    def append(self, lines: bytes) -> None:
        with storing(self._path):
            if self._file.write(lines) < len(lines):  # a full disk takes a part without an error
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self, *, keep: bool) -> None:
        self._file.close()


class _Objects:
    """Writes the lines to the store in a thread, so that no call waits for the store."""

    def __init__(self, stem: UPath) -> None:
        self._names = (stem.with_name(f"{stem.name}.{number:05d}.jsonl") for number in count())
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._error: StorageError | None = None
        self._closing = Event()
        self._thread = Thread(target=self._store_periodically, daemon=True)
        self._thread.start()

    def append(self, lines: bytes) -> None:
        if self._error:
            raise self._error
        self._lines.put(lines)

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


def _replay(paths: Sequence[StoragePath]) -> dict[tuple[str, int | None], dict[str, Completion]]:
    known: defaultdict[tuple[str, int | None], dict[str, Completion]] = defaultdict(dict)
    unusable = 0
    for path in paths:
        try:
            lines = read_whole(path).splitlines()
        except FileNotFoundError:  # another worker has just committed the shard
            continue
        for line in lines:
            try:
                question_id, *configuration, key, completion = orjson.loads(line)
                known[question_id, *(configuration or [None])][key] = STORED_COMPLETION.validate_python(completion)
            except orjson.JSONDecodeError:  # its writer died before the line was complete
                continue
            except (ValidationError, TypeError, ValueError):
                unusable += 1
    if unusable:
        _log.warning("calls in journals with replies that cannot be used, which are made again: %d", unusable)
    return known
