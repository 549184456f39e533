"""The draft of an open shard: each finished model call, appended as it returns.

Whoever takes a shard over replays its drafts and repeats only the calls that were in flight. Every worker writes a
draft of its own, so that no two ever append to one file; a torn line is a call that was not made. The drafts go when
the shard is committed.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Self

import orjson

from pipeline.llm.prompt import Completion
from pipeline.traces.folder import RunFolder, storing


class Draft:
    """The calls of one open shard, each safe from the death of this process as soon as `append` returns."""

    def __init__(self, folder: RunFolder, shard: int) -> None:
        """Read what earlier workers left of the shard, and open a draft of our own beside it."""
        self._left = folder.drafts(shard)
        self._known = _replay(self._left)
        self._path = folder.path / "drafts" / f"shard-{shard:05d}.{uuid.uuid4().hex[:8]}.jsonl"
        # Unbuffered: one append-only write per line, which the kernel keeps when this process is killed.
        self._file = self._path.open("ab", buffering=0)

    def calls(self, question_id: str) -> dict[str, Completion]:
        """The finished calls of a question by an earlier worker, by call key."""
        return self._known.get(question_id, {})

    def append(self, question_id: str, key: str, completion: Completion) -> None:
        """Make one finished call durable. Raises StorageError."""
        line = orjson.dumps((question_id, key, completion)) + b"\n"
        with storing(self._path):
            if self._file.write(line) < len(line):  # a disk that has just filled up takes a part and says nothing
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def discard(self) -> None:
        """Remove every draft of the shard; call it once the shard is committed."""
        for path in (*self._left, self._path):
            path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()


def _replay(paths: list[Path]) -> dict[str, dict[str, Completion]]:
    known: defaultdict[str, dict[str, Completion]] = defaultdict(dict)
    for path in paths:
        for line in path.read_bytes().splitlines():
            try:
                question_id, key, completion = orjson.loads(line)
            except orjson.JSONDecodeError:  # torn by the death of its writer
                continue
            known[question_id][key] = Completion(**completion)
    return known
