"""Writes the log of a run as JSON lines with run, worker and shard (`engine.log=json`)."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pythonjsonlogger.orjson import OrjsonFormatter

from pipeline.console import Console

log = logging.getLogger(__name__)

shard_of: ContextVar[int | None] = ContextVar("shard_of", default=None)
"""The shard that the current task works on."""

_FIELDS = {"levelname": "level", "name": "logger", "message": "message"}
_OURS = logging.getLogger("pipeline")


@contextmanager
def json_lines(engine: Mapping[str, Any], *, run: str, worker: str) -> Iterator[None]:
    """With `engine.log=json`, write log records to stderr as JSON: the project's from INFO, others from WARNING."""
    if engine["log"] != "json":
        yield
        return
    lines = logging.StreamHandler()
    of_process = {"run": run, "worker": worker}
    lines.setFormatter(OrjsonFormatter([*_FIELDS], rename_fields=_FIELDS, static_fields=of_process, timestamp=True))
    lines.addFilter(_keep)
    logging.getLogger().addHandler(lines)
    _OURS.setLevel(logging.INFO)
    try:
        yield
    finally:
        _OURS.setLevel(logging.NOTSET)
        logging.getLogger().removeHandler(lines)


def console_of(engine: Mapping[str, Any], console: Console) -> Console:
    """Return the console of the driver; with `engine.log=json` one whose lines are log records."""
    return Console(file=_Records(), width=1000) if engine["log"] == "json" else console


class _Records(io.StringIO):
    def write(self, text: str, /) -> int:
        for line in filter(str.strip, text.splitlines()):
            log.info(line.rstrip())
        return len(text)


def _keep(record: logging.LogRecord) -> bool:
    """Keep our records and the warnings of others, and add the shard of the current task.

    A line of the driver's console is about the run, whichever shard's row has caused it.
    """
    if record.name != log.name and (shard := shard_of.get()) is not None:
        record.shard = shard
    return record.levelno >= logging.WARNING or record.name.startswith(f"{_OURS.name}.")
