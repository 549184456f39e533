"""A table of all questions of a run with their outcomes, so that a million of them can be filtered in a second.

It is computed shard by shard in the background, and kept as Parquet slices in the user's cache folder. A slice belongs
to the shards that it was computed from: after a change of a shard, its slice is computed again. The run folder is only
read.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import orjson
import polars as pl

from pipeline.analysis.losses import LOSS_COLUMNS, REASONS, STAGES, find_loss
from pipeline.analysis.question_trace import QuestionTrace
from pipeline.analysis.runs import Run
from pipeline.errors import StorageError, UserError
from pipeline.traces.folder import RunFolder, RunState
from pipeline.traces.reader import read_shards
from pipeline.traces.shard_file import shard_digest
from pipeline.traces.storage import StoragePath, make_folder, writing

Outcome: TypeAlias = Literal["right", "wrong", "failed", "unscored"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""`unscored` is a question without gold answers."""

VERSION = 3
"""Increase it when the columns of a slice, or what they mean, change."""
_TEXT = 300
"""Characters of a question that are kept, and of its answers."""
_TYPES: Mapping[str, Any] = {
    "shard": pl.Int32,
    "configuration": pl.Int32,
    "question_id": pl.String,
    "question": pl.String,
    "answers": pl.String,
    "gold": pl.String,
    "type": pl.String,
    "hops": pl.Int32,
    "outcome": pl.Enum(OUTCOMES),
    "stage": pl.Enum(STAGES),
    "reason": pl.Enum(REASONS),
    "f1": pl.Float32,
    "calls": pl.Int64,
    "tokens": pl.Int64,
    "seconds": pl.Float32,
}
COLUMNS = tuple(_TYPES)
"""The columns of the table. `seconds` is `critical_s` of the traces where it is known, else `wall_s`."""
_READ = (
    *("point", "question_id", "question", "type", "query_type", "hops", "f1", "gold"),
    *("llm_calls", "prompt_tokens", "completion_tokens", "critical_s", "wall_s"),
)
_FULL_SLICE = 50_000
"""Rows after which a slice is written."""
_AT_ONCE = 5_000
"""Trace rows that are held in memory."""
_LONGEST_WAIT_S = 3.0
"""Seconds after which the first slice is shown, however small it is."""
_MOST_SLICES = 32
"""Slices above which the small ones are joined."""

_OLD_S = 3600
"""Seconds after which a file that no list names is removed."""


def cache_folder() -> Path:
    """Return the user's folder for what can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "kgqa" / "viewer"


@dataclass(frozen=True, slots=True)
class _Slice:
    """A part of the table, in a file."""

    path: Path
    shards: Mapping[int, str]
    """The digests of the shards that it was computed from, by their numbers."""
    rows: int


@dataclass(frozen=True, slots=True)
class State:
    """How far the table is."""

    shards: int
    """Shards in the table."""
    finished: int
    """Finished shards of the run."""
    rows: int
    run: RunState | Literal["not read yet"]
    problems: Sequence[str] = ()
    """Sentences about shards that cannot be read."""

    @property
    def is_growing(self) -> bool:
        """Whether more rows may come."""
        return self.run != "complete" or self.shards + len(self.problems) < self.finished


class RunIndex:
    """The table of one run. `update` may run in another thread than the queries."""

    def __init__(self, folder: RunFolder, name: str, cache: Path) -> None:
        """Open the part of the table that is in the cache.

        Raises UserError if the folder is not a run, and StorageError if there can be no cache.
        """
        self.folder, self.name = folder, name
        self._caches = cache
        self._updating = threading.Lock()
        self._begin(folder.require_run())

    def _begin(self, metadata: Mapping[str, Any]) -> None:
        """Open the part of the table of this run that is in the cache."""
        place = hashlib.blake2b(f"{self.folder.path.absolute()}\n{metadata.get('id')}".encode(), digest_size=8)
        cache = self._caches / place.hexdigest()
        _make(cache)
        self._slices: Sequence[_Slice] = ()  # a query meanwhile finds no row of another run
        self._cache = cache
        self._stamps: dict[int, tuple[object, str]] = {}
        self._problems: dict[int, tuple[str, str]] = {}
        self._finished: Mapping[int, str] = {}
        self._run: RunState | Literal["not read yet"] = "not read yet"
        self.metadata = metadata
        self._slices = self._read_manifest()

    @property
    def configurations(self) -> int:
        """The number of configurations."""
        return len(self.metadata["points"])

    @property
    def state(self) -> State:
        """How far the table is."""
        slices = self._slices
        return State(
            shards=sum(len(each.shards) for each in slices),
            finished=len(self._finished),
            rows=sum(each.rows for each in slices),
            run=self._run,
            problems=[sentence for _, sentence in self._problems.values()],
        )

    @property
    def version(self) -> Hashable:
        """What changes with every change of the table."""
        return tuple(each.path for each in self._slices)

    def scan(self) -> pl.LazyFrame:
        """Return the table as it is now: `row` (its number) and `COLUMNS`."""
        paths = [each.path for each in self._slices]
        if not paths:
            return pl.LazyFrame(schema={"row": pl.UInt32, **_TYPES})
        return pl.scan_parquet(paths, row_index_name="row", glob=False)

    def question(self, id: str, configuration: int) -> QuestionTrace:
        """Read a question with all of its steps from its shard. Raises UserError if the table does not have it."""
        if configuration not in range(self.configurations):
            raise UserError(f"{self.name} has no configuration {configuration}")
        wanted = (pl.col("configuration") == configuration) & (pl.col("question_id") == id)
        found = self.scan().filter(wanted).select("shard").collect()["shard"]
        if found.is_empty():
            still = "; its shards are still being read" if self.state.is_growing else ""
            raise UserError(f"configuration {configuration} of {self.name} has no finished question '{id}'{still}")
        shard = int(found[0])
        return Run.of_shards(self.folder, self.metadata, [shard]).question(id, configuration)

    # Filling the table

    def update(self, stop: threading.Event | None = None) -> None:
        """Add the shards that have been finished since, and those that have changed. Returns early after `stop`."""
        with self._updating:
            head = self.folder.read_head()
            if head and head.get("id") != self.metadata.get("id"):  # another run has begun in the folder
                self._begin(self.folder.require_run())
            run = self.folder.state(self.folder.read_summary())
            self._finished = {index: self._digest(index) for index in sorted(self.folder.finished())}
            self._run = run  # only now: the state must not call a run complete without its shards
            self._drop_changed()
            known = {index for each in self._slices for index in each.shards}
            bad = {index for index, (digest, _) in self._problems.items() if self._finished.get(index) == digest}
            self._problems = {index: self._problems[index] for index in bad}
            missing = [index for index in self._finished if index not in known | bad]
            for rows, shards in self._read(missing, stop):
                self._add(rows, shards)

    def _digest(self, index: int) -> str:
        """Return the digest of a shard; it is computed again only if the file has another size or time."""
        path = self.folder.shard(index)
        stamp = _stamp(path)
        if self._stamps.get(index, (None, ""))[0] != stamp or index not in self._stamps:
            self._stamps[index] = stamp, f"{shard_digest(path)}-{stamp}"
        return self._stamps[index][1]

    def _drop_changed(self) -> None:
        kept = [
            each
            for each in self._slices
            if all(self._finished.get(index) == digest for index, digest in each.shards.items())
        ]
        if len(kept) != len(self._slices):
            self._publish(kept)

    def _read(
        self, missing: Sequence[int], stop: threading.Event | None
    ) -> Iterator[tuple[pl.DataFrame, Mapping[int, str]]]:
        """Yield the rows of shards, in parts of about a slice, and earlier if nothing is shown for long."""
        traces: list[pl.DataFrame] = []
        parts: list[pl.DataFrame] = []
        shards: dict[int, str] = {}
        began = time.monotonic()
        for index in missing:
            if stop is not None and stop.is_set():
                break
            try:
                traces += _read_shard(self.folder, index)
            except (UserError, FileNotFoundError) as error:
                self._problems[index] = self._finished[index], str(error)
                continue
            shards[index] = self._finished[index]
            is_late = time.monotonic() - began > _LONGEST_WAIT_S and not self._slices
            if is_late or sum(each.height for each in traces) >= _AT_ONCE:
                parts.append(index_rows(pl.concat(traces)))
                traces = []
            if is_late or sum(part.height for part in parts) >= _FULL_SLICE:
                yield pl.concat(parts), shards
                parts, shards = [], {}
        if shards:
            yield pl.concat([*parts, *([index_rows(pl.concat(traces))] if traces else [])]), shards

    def _add(self, rows: pl.DataFrame, shards: Mapping[int, str]) -> None:
        slices = [*self._slices, self._write(rows, shards)]
        if len(slices) > _MOST_SLICES:
            small = [each for each in slices if each.rows < _FULL_SLICE]
            joined = {index: digest for each in small for index, digest in each.shards.items()}
            if len(small) > 1:
                frame = pl.scan_parquet([each.path for each in small], glob=False).collect()
                slices = [*(each for each in slices if each not in small), self._write(frame, joined)]
        self._publish(slices)

    def _write(self, rows: pl.DataFrame, shards: Mapping[int, str]) -> _Slice:
        """Write a slice. Raises StorageError."""
        key = orjson.dumps([VERSION, sorted(shards.items())])
        path = self._cache / f"{hashlib.blake2b(key, digest_size=12).hexdigest()}.parquet"
        with writing(path) as file:
            rows.write_parquet(file, compression="zstd", compression_level=1, row_group_size=_FULL_SLICE)
        return _Slice(path, dict(shards), rows.height)

    def _publish(self, slices: Sequence[_Slice]) -> None:
        """Show these slices from now on, and list them in `index.json`. Other files stay for a running query."""
        self._slices = sorted(slices, key=lambda each: min(each.shards, default=0))
        listed = [
            {"file": each.path.name, "rows": each.rows, "shards": sorted(each.shards.items())} for each in self._slices
        ]
        with writing(self._cache / "index.json") as file:
            file.write(orjson.dumps({"version": VERSION, "slices": listed}))

    def _read_manifest(self) -> Sequence[_Slice]:
        """Return the slices of the cache, and remove old files that belong to none. A damaged list counts as none."""
        try:
            listed = orjson.loads((self._cache / "index.json").read_bytes())
            slices = [
                _Slice(self._cache / Path(each["file"]).name, dict(each["shards"]), int(each["rows"]))
                for each in listed["slices"]
                if listed["version"] == VERSION
            ]
            sound = [each for each in slices if _is_sound(each)]
        except (OSError, ValueError, LookupError, TypeError):
            sound = []
        used = {each.path for each in sound}
        for file in self._cache.glob("*.parquet"):
            if file not in used and time.time() - file.stat().st_mtime > _OLD_S:  # a newer one may be another viewer's
                file.unlink(missing_ok=True)
        return sound


def _make(folder: Path) -> None:
    """Make the folder of the cache. Raises StorageError."""
    try:
        make_folder(folder)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be made: {error.strerror}; set XDG_CACHE_HOME to a folder that can be written"
        ) from None


def _is_sound(part: _Slice) -> bool:
    """Whether the file of a slice has its rows and columns."""
    try:
        scan = pl.scan_parquet(part.path, glob=False)
        has_types = scan.collect_schema() == pl.Schema(_TYPES)
        return has_types and scan.select(pl.len()).collect().item() == part.rows
    except (OSError, pl.exceptions.PolarsError):
        return False


def _stamp(path: StoragePath) -> object:
    """Return size and time of a file. An object in a store is written once, and not asked again."""
    if not isinstance(path, Path):
        return None
    stat = path.stat()
    return f"{stat.st_size}-{stat.st_mtime_ns}"


def _read_shard(folder: RunFolder, shard: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of a shard with its number. Raises UserError and FileNotFoundError like `read_shards`."""
    columns = list(dict.fromkeys([*_READ, *LOSS_COLUMNS]))
    for rows in read_shards(folder, columns, indices=[shard]):
        yield rows.with_columns(pl.lit(shard, pl.Int32).alias("shard"))


def index_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the table for some trace rows.

    These have the number of their shard, `LOSS_COLUMNS`, and the columns that are shown.
    """
    is_failed, score = pl.col("status") == "failed", pl.col("hits_at_1")
    outcome = (
        pl.when(is_failed)
        .then(pl.lit("failed"))
        .when(score.is_null())
        .then(pl.lit("unscored"))
        .otherwise(pl.when(score >= 1).then(pl.lit("right")).otherwise(pl.lit("wrong")))
    )
    losses = pl.DataFrame(
        [_loss(row) for row in rows.filter(score < 1).select("point", *LOSS_COLUMNS).iter_rows(named=True)],
        {"point": pl.Int32, "question_id": pl.String, "stage": pl.String, "reason": pl.String},
        orient="row",
    )
    return (
        rows.join(losses, on=["point", "question_id"], how="left", maintain_order="left")
        .select(
            "shard",
            pl.col("point").alias("configuration"),
            "question_id",
            pl.col("question").str.slice(0, _TEXT),
            *(pl.col(name).list.head(8).list.join("; ").str.slice(0, _TEXT) for name in ("answers", "gold")),
            pl.coalesce("type", "query_type").alias("type"),
            "hops",
            outcome.alias("outcome"),
            "stage",
            "reason",
            "f1",
            pl.col("llm_calls").alias("calls"),
            (pl.col("prompt_tokens") + pl.col("completion_tokens")).alias("tokens"),
            pl.coalesce("critical_s", "wall_s").alias("seconds"),
        )
        .cast(pl.Schema(_TYPES))
    )


def _loss(row: Mapping[str, Any]) -> tuple[Any, ...]:
    loss = find_loss(row)
    return (row["point"], row["question_id"], loss and loss.stage, loss and loss.reason)
