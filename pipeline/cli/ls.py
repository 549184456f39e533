"""`kgqa ls`: list runs with their scores and costs.

It reads `run.yaml` and `summary.json`. It opens traces only of a run that is not complete, to count its questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from math import isinf
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from rich.table import Table

from pipeline import config
from pipeline.analysis.score_notes import older_replies_note
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.engine.retry_advice import retry_refusals
from pipeline.errors import UserError
from pipeline.evaluation.configuration_summary import differing_overrides, known_tokens, rivals, standing
from pipeline.evaluation.score_tables import percent, plain_table
from pipeline.llm.interface import is_told_gold
from pipeline.text import counted, kgqa
from pipeline.traces.folder import BATCH, RunFolder, RunState
from pipeline.traces.reader import count_questions
from pipeline.traces.run_file import language_models
from pipeline.traces.storage import StoragePath, names_in, storage_path

_DEFAULT = "runs"
_CONCURRENT_READS = 32
"""Folders that are read concurrently, which counts in an object store."""
_MOST_NAMES = 3
"""Methods, or datasets, of a run that are named; of more, their number is printed."""
_HEADINGS = (
    "started",
    "run",
    "method",
    "data",
    "questions",
    "Hits@1",
    "failed",
    "calls",
    "tokens",
    "state",
    "tags",
    "note",
)
_NUMERIC = ("configurations", "questions", "Hits@1", "failed", "calls", "tokens")
"""The headings of figures."""


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """One run. Figures are None while there is no summary."""

    run: str
    """The run folder."""
    started: datetime
    methods: Sequence[str]
    datasets: Sequence[str]
    labels: Sequence[str]
    """The simulated models that answered; empty for language models."""
    models: Sequence[str] = ()
    """The names of the language models that answered. Empty in a run of a version that did not write them."""
    retrievers: Sequence[str] = ()
    departures: Sequence[str] = ()
    """Where presets did not run as published."""
    configurations: int
    complete: bool
    state: RunState
    finished_shards: int | None = None
    """The number of finished shards while there is no summary."""
    stopped: str | None = None
    """With which error the run has stopped because its questions failed again and again; None if it has not."""
    questions: int | None = None
    """Questions of the run; of one that is not complete, those in its finished shards."""
    failed: int | None = None
    """Questions that failed, summed over configurations. They count as wrong."""
    retry_refusals: Sequence[str] = ()
    """When `run.retry_failed=true` is refused, and what to do then, if questions failed."""
    hits_at_1: float | None = None
    """The share of correct first answers: that of the best configuration if there are several."""
    interval: Annotated[Sequence[float], Field(min_length=2, max_length=2)] | None = None
    """The lower and the upper end for `hits_at_1`."""
    confidence: float | None = None
    best_configuration: int | None = None
    """The configuration with `hits_at_1`."""
    rivals: int | None = None
    """The number of configurations of which it is the best: those that answered all questions, without oracles."""
    rivals_are_seeds: bool = False
    """Whether these differ in `run.seed` alone: then the best one is luck."""
    older_replies: int = 0
    """Questions scored by new gold answers that a simulated model answered from older ones."""
    logical_llm_calls: int | None = None
    """Model calls as if each configuration had run alone; `tokens` are counted alike."""
    physical_llm_calls: int | None = None
    """Model calls that were made."""
    tokens: int | None = None
    tags: Sequence[str]
    note: str | None


_LISTED_RUN = TypeAdapter(ListedRun)


def run(arguments: Arguments) -> Output:
    """List the runs in and below the folders, the newest first."""
    tag = arguments.compose()["tag"]
    if tag == "":
        raise UserError("tag= is empty: name a tag, or leave out the key")
    folders = [storage_path(word) for word in arguments.words or [_DEFAULT]]
    if missing := [folder for folder in folders if arguments.words and not folder.is_dir()]:
        raise UserError(f"there is no folder {missing[0]}")
    found, damaged = find_runs(folder for folder in folders if folder.is_dir())
    runs = [each for each in found if tag is None or str(tag) in each.tags]
    runs.sort(key=lambda each: each.started, reverse=True)
    places = ", ".join(map(str, folders))
    none = f"no run in {places}" if tag is None else f"no run with the tag {tag} in {places}"
    figures = {"runs": [asdict(each) for each in runs]}
    older = [older_replies_note(each.run, each.older_replies) for each in runs if each.older_replies]
    lines = _lines(runs) if runs else [none]
    return Output(figures, lines=lines, notes=[*older, *damaged], full_tables=[_table(runs)])


def find_runs(folders: Iterable[StoragePath]) -> tuple[list[ListedRun], list[str]]:
    """Return the runs in and below the folders, and a sentence about each run folder that cannot be read."""
    runs: list[ListedRun] = []
    damaged: list[str] = []
    level = list(dict.fromkeys(folders))
    with ThreadPoolExecutor(_CONCURRENT_READS) as pool:
        while level:
            looked = list(pool.map(_look, level))
            level = [folder for _, below in looked for folder in below]
            runs += [found for found, _ in looked if isinstance(found, ListedRun)]
            damaged += [found for found, _ in looked if isinstance(found, str)]
    return runs, damaged


def _look(path: StoragePath) -> tuple[ListedRun | str | None, list[StoragePath]]:
    """Return the run in a folder, or a sentence about damage, and the subfolders that may hold other runs."""
    try:
        files, subfolders = names_in(path)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}", []
    if not {"run.yaml", "summary.json", "traces"} & (files | subfolders):
        return None, [path / name for name in sorted(subfolders) if not name.startswith(".")]
    return _run_or_damage(RunFolder(path)), [path / name for name in sorted(subfolders) if name.startswith(BATCH)]


def _run_or_damage(folder: RunFolder) -> ListedRun | str:
    """Return the run in a folder, or a sentence about what is damaged in it and what to do."""
    try:
        return _read(folder)
    except OSError as error:
        return f"{folder.path} cannot be read: {error.strerror}"
    except UserError as error:
        return " ".join(str(error).split())
    except (LookupError, TypeError, ValueError, AttributeError):
        repair = f"remove summary.json, and {kgqa('evaluate', folder.path / 'run.yaml')} writes it again"
        return (
            f"{folder.path} cannot be listed: its run.yaml or its summary.json is not that of a run. Restore run.yaml "
            f"from a copy, or {repair}"
        )


def _read(folder: RunFolder) -> ListedRun:
    """Read one run. Raises UserError and what a file of another form causes."""
    head = folder.read_head()
    if head is None:
        raise UserError(f"{folder.path} has no run.yaml: its run has not begun, or the file is lost")
    summary = folder.read_summary()
    unfinished = {} if summary else folder.read_run() or {}
    points = summary["points"] if summary else _unfinished(unfinished)
    state = folder.state(summary)
    listed = ListedRun(
        run=str(folder.path),
        started=datetime.fromisoformat(head["started"]).astimezone(),
        methods=list(dict.fromkeys(point["method"] for point in points)),
        datasets=list(dict.fromkeys(point["dataset"] for point in points)),
        labels=list(dict.fromkeys(point["label"] for point in points if point["label"])),
        models=summary.get("models", []) if summary else language_models(unfinished),
        retrievers=list(dict.fromkeys(point["retriever"] for point in points if point.get("retriever"))),
        departures=list(dict.fromkeys(name for point in points for name in point.get("departures", ()))),
        configurations=len(points),
        complete=state == "complete",
        state=state,
        tags=head.get("tags") or [],
        note=head.get("note"),
        **(_figures(summary) if summary else _counts(folder)),
        retry_refusals=_refusals(folder, summary) if summary else [],
    )
    return _LISTED_RUN.validate_python(asdict(listed))


def _refusals(folder: RunFolder, summary: Mapping[str, Any]) -> list[str]:
    """Return when the failed questions of a run cannot be asked again in its folder."""
    counts = [(point["failed"], point["questions"] - point.get("not_run", 0)) for point in summary["points"]]
    if not any(failed for failed, _ in counts):  # of most runs, run.yaml need not be read as a whole
        return []
    run = folder.require_run()
    configs = [point["config"] for point in run["points"]]
    return retry_refusals(folder.path, configs, run, counts, folder.deciding_search)


def _unfinished(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what `ListedRun` says of each configuration of a run without a summary."""
    return [
        {
            "method": _name(point["config"], "method"),
            "dataset": _name(point["config"], "dataset"),
            "label": served["label"],
            "retriever": config.retriever(point["config"]),
            "departures": config.departures(point["config"]),
        }
        for point, served in zip(run["points"], run["served"], strict=True)
    ]


def _name(composed: Mapping[str, Any], section: str) -> str:
    """Return the name of a method or a dataset in results; of a class without the key `name`, that of the choice."""
    return str(composed[section].get("name", composed["choices"][section]))


def _counts(folder: RunFolder) -> dict[str, Any]:
    """Return how much of a run without a summary is finished, and what stopped it."""
    shards = len(folder.finished())
    questions = count_questions(folder) if shards else 0
    stopped = folder.read_error() if folder.state(None) == "not complete" else ""
    return {"finished_shards": shards, "questions": questions, "stopped": stopped or None}


def _figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a summary: the highest score, if scores can be compared, and the costs of all."""
    points = summary["points"]
    known = [(point.get("asked"), point["questions"], _is_oracle(point)) for point in points]
    among = [points[each] for each in rivals(known)]
    best = max(among, key=lambda point: standing(point["hits_at_1"], point["llm_calls"], point["tokens"]), default=None)
    return {
        "questions": summary["questions"],
        "failed": sum(point["failed"] for point in points),
        "hits_at_1": best and best["hits_at_1"],
        "interval": best and best["intervals"].get("hits_at_1"),
        "confidence": points[0]["confidence"],
        "best_configuration": best and best["point"],
        "rivals": len(among),
        "rivals_are_seeds": _are_seeds(among),
        "older_replies": summary.get("older_replies", 0),
        "logical_llm_calls": summary["logical_llm_calls"],
        "physical_llm_calls": summary["physical_llm_calls"],
        "tokens": None if all(map(_has_no_tokens, points)) else sum(point["tokens"] for point in points),
    }


def _has_no_tokens(point: Mapping[str, Any]) -> bool:
    """Whether a configuration made calls, and the servers counted no tokens."""
    return isinf(known_tokens(point["llm_calls"], point["tokens"]))


def _are_seeds(points: Sequence[Mapping[str, Any]]) -> bool:
    """Whether configurations differ in their seeds and in nothing else."""
    differing = [tuple(words) for words in differing_overrides([point["overrides"] for point in points] or [()])]
    are_seeds = all(word.startswith("run.seed=") for words in differing for word in words)
    return are_seeds and 1 < len(set(differing)) == len(differing)


def _is_oracle(point: Mapping[str, Any]) -> bool:
    return bool(point.get("closed_book")) or is_told_gold(point["method"])


def _lines(runs: Sequence[ListedRun]) -> list[str]:
    """Return the headings, one line for each run in aligned columns, what the figures mean, and why runs stopped."""
    rows = [_HEADINGS, *map(_cells, runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    retry = (
        "failed questions count as wrong: kgqa evaluate RUN/run.yaml run.retry_failed=true asks them again (a run.yaml "
        "that sends a key or runs code of yours needs run.trust=true); a question that the model can never answer (a "
        "prompt that is too long for it) fails again"
    )
    failed = [retry] if any(each.failed and not each.retry_refusals for each in runs) else []
    refused = [line for each in runs for line in each.retry_refusals]
    stopped = [f"{each.run} has stopped, because {each.stopped}" for each in runs if each.stopped]
    return [*(line.rstrip() for line in aligned), *_meaning(runs), *stopped, *failed, *refused]


def _meaning(runs: Sequence[ListedRun]) -> list[str]:
    """Say what the figures mean; nothing if no run has any."""
    coverage = " / ".join(sorted({f"{100 * each.confidence:g} %" for each in runs if each.confidence}))
    meaning = (
        f"Hits@1 in percent ({coverage} interval); failed: each configuration counts its own questions; calls and "
        "tokens as if each configuration had run alone"
    )
    return [meaning] if coverage else []


def _table(runs: Sequence[ListedRun]) -> Table:
    """Return what `table=FILE` writes: a row for each run, and one value in each cell."""
    table = plain_table(None, "\n".join(_meaning(runs)))
    for heading in (*_HEADINGS[:3], "configurations", *_HEADINGS[3:]):
        table.add_column(heading, justify="right" if heading in _NUMERIC else "left")
    for run in runs:
        started, path, _, data, questions, _, *others = _cells(run)
        score = "–" if run.hits_at_1 is None else _score(run, "{} {}–{}")  # a sentence would join the columns
        cells = (started, path, _method(run), str(run.configurations), data, questions, score)
        table.add_row(*cells, *others)
    return table


def _cells(run: ListedRun) -> tuple[str, ...]:
    several = run.configurations > 1
    return (
        f"{run.started:%Y-%m-%d %H:%M}",
        run.run,
        _method(run, _several_of(run) if several else ""),
        _names(run.datasets, "datasets"),
        _count(run.questions),
        _score(run, _best_of(run) + "{} ({}–{})"),
        _count(run.failed),
        _count(run.logical_llm_calls),
        _count(run.tokens),
        _state(run),
        ",".join(run.tags),
        " ".join((run.note or "").split()),
    )


def _best_of(run: ListedRun) -> str:
    rivals = run.configurations if run.rivals is None else run.rivals
    return f"best of {rivals}{' seeds' if run.rivals_are_seeds else ''}: " if rivals > 1 else ""


def _method(run: ListedRun, several: str = "") -> str:
    models = _names([*run.labels, *run.models], "models", ", ")
    label = f" ({models})" if models else ""
    label += f" [{_names(run.departures, 'departures', ', ')}]" if run.departures else ""
    return f"{_names(run.methods, 'methods')}{several}{label}"


def _several_of(run: ListedRun) -> str:
    """Return the number of configurations: of one method, or of several together."""
    return f" × {run.configurations}" if len(run.methods) == 1 else f", {counted(run.configurations, 'configuration')}"


def _names(names: Sequence[str], kind: str, separator: str = "+") -> str:
    return separator.join(names) if len(names) <= _MOST_NAMES else f"{len(names)} {kind}"


def _state(run: ListedRun) -> str:
    shards = run.finished_shards
    return run.state if shards is None else f"{run.state}, {counted(shards, 'shard')} finished"


def _score(run: ListedRun, form: str) -> str:
    """Return the score and the ends of its interval in this form."""
    if run.hits_at_1 is None or run.interval is None:
        return "not the same questions of one graph" if run.confidence and run.best_configuration is None else "–"
    return form.format(*map(percent, (run.hits_at_1, *run.interval)))


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
