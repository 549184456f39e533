"""What is exported: a configuration of a run with its summary, and its questions one after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from pipeline import config
from pipeline.analysis.question_trace import QuestionTrace, build_question_trace
from pipeline.analysis.runs import Run, read_summaries
from pipeline.errors import UserError
from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.traces.run_file import code_of
from pipeline.traces.schema import SCHEMA

VERSION = version("kgqa-pipeline")
_BEGINNING = 100_000
"""Bytes of a file in which the id of its run stands."""


@dataclass(frozen=True, slots=True)
class ExportedQuestion:
    """A question with its trace, and the columns of its steps."""

    trace: QuestionTrace
    steps: Sequence[Mapping[str, Any]]
    """Parallel to the steps of the trace: times in seconds since the question began, tokens, sampling."""

    @property
    def reply(self) -> str:
        """What the method answered, as one text."""
        return str(self.trace.row["raw_answer"] or ", ".join(self.trace.answers))


Watch = Callable[[], None]
"""Is called for each question, to show the progress."""


@dataclass(frozen=True, slots=True)
class ExportedConfiguration:
    """One configuration of a run."""

    folder: RunFolder
    metadata: Mapping[str, Any]
    """The contents of `run.yaml`."""
    summary: ConfigurationSummary
    gold_digest: str
    """A digest of the answered questions with their gold answers."""
    watch: Watch
    """Sees each question that is read."""

    @property
    def number(self) -> int:
        """The number of the configuration in its run."""
        return self.summary.number

    @property
    def name(self) -> str:
        """A name that no other configuration of any run has, unless a folder was renamed: `RUN-3`."""
        return f"{self.folder.path.absolute().name}-{self.number}"

    @property
    def run_id(self) -> str:
        """The id of the run; its folder for a run of an older version."""
        return str(self.metadata.get("id") or self.folder.path.absolute())

    @property
    def served(self) -> Mapping[str, Any]:
        """`model`, `label`, `graph` and `roles`, as in `run.yaml`."""
        served: Mapping[str, Any] = self.metadata["served"][self.number]
        return served

    @property
    def resolved(self) -> Mapping[str, Any]:
        """The composed configuration."""
        resolved: Mapping[str, Any] = self.metadata["points"][self.number]["config"]
        return resolved

    @property
    def parameters(self) -> dict[str, Any]:
        """The keys that decide the answers, by dotted name, the choices of configuration groups, and two digests.

        Scores by other gold answers, or of other code, cannot be compared: `dataset.gold_digest`, `code_digest`.
        """
        keys = {**self.resolved["choices"], **config.deciding_keys(self.resolved)}
        code = config.canonical(code_of(self.metadata, self.number))
        return {**keys, "dataset.gold_digest": self.gold_digest, "code_digest": _digest(code)}

    @property
    def scores(self) -> dict[str, float]:
        """The mean of each score, and the ends of its interval as `f1.low` and `f1.high`."""
        ends = {
            f"{name}{suffix}": value
            for name, score in self.summary.scores.items()
            for suffix, value in (("", score.mean), (".low", score.low), (".high", score.high))
        }
        return {name: float(value) for name, value in ends.items()}

    @property
    def started(self) -> datetime:
        """When the run began. A trace does not say when a question began, so all of them count from here."""
        try:
            return datetime.strptime(str(self.metadata.get("started")), "%Y-%m-%dT%H:%M:%S%z")
        except ValueError:
            return datetime.fromtimestamp(0, UTC)

    def after(self, seconds: float) -> datetime:
        """Return the moment so many seconds after the run began."""
        return self.started + timedelta(seconds=float(seconds))

    def questions(self) -> Iterator[ExportedQuestion]:
        """Yield the finished questions in the order of the traces. Raises UserError like `read_shards`."""
        for rows in read_shards(self.folder, SCHEMA.names):
            for row in rows.filter(pl.col("point") == self.number).iter_rows(named=True):
                named = {"configuration" if name == "point" else name: value for name, value in row.items()}
                trace = build_question_trace(named, self.folder)
                steps = [{**one, **texts} for one, texts in zip(row["steps"], row["texts"], strict=True)]
                yield ExportedQuestion(trace, steps)
                self.watch()


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def exported_configurations(
    run: Run, configuration: int | None, watch: Watch = lambda: None
) -> list[ExportedConfiguration]:
    """Return all configurations of a run, or one of them. Raises UserError if it has no such configuration."""
    summaries = read_summaries(run.folder, run.metadata)
    chosen = [each for each in summaries if configuration in (None, each.number)]
    if not chosen:
        raise UserError(f"{run.folder.path} has no configuration {configuration}: its highest is {len(summaries) - 1}")
    gold = _gold_digests(run.folder)
    return [ExportedConfiguration(run.folder, run.metadata, each, gold[each.number], watch) for each in chosen]


def _gold_digests(folder: RunFolder) -> dict[int, str]:
    """Return a digest of the answered questions of each configuration with their gold answers."""
    columns = ["point", "question_id", "gold"]
    rows = pl.concat(read_shards(folder, columns)).select("point", "question_id", pl.col("gold").list.sort())
    parts = rows.sort("question_id").partition_by("point", as_dict=True, include_key=False)
    return {int(number): _digest(config.canonical(part.rows())) for (number,), part in parts.items()}


def own_file(exported: ExportedConfiguration, output: str, format: str, suffix: str) -> Path:
    """Return the file `RUN-N` of a configuration in the folder `output`, which is created.

    Raises UserError like `local_folder`, and for a file outside of the run folder that does not name the run: a folder
    elsewhere may have the same name.
    """
    file = local_folder(output, format) / f"{exported.name}{suffix}"
    if file.is_file() and not file.resolve().is_relative_to(Path(str(exported.folder.path)).resolve()):
        with file.open("rb") as opened:
            beginning = opened.read(_BEGINNING)
        if exported.run_id.encode() not in beginning:
            raise UserError(
                f"{file} is of another run whose folder has the same name, or of this one before a restart: remove it, "
                "or name another output="
            )
    return file


def local_folder(output: str, format: str) -> Path:
    """Create the folder that an output names. Raises UserError for an object store, or a file of that name."""
    if "://" in output:
        raise UserError(f"output={output}: format={format} writes to a folder of this machine")
    try:
        folder = Path(output)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"output={output} cannot be created: {error.strerror}") from None
    return folder
